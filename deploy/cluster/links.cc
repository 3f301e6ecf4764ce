#include "deploy/cluster/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "deploy/cluster/daemons.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/relay/packet_port.h"

namespace longhaul {
namespace {

constexpr absl::Duration kRelayPatience = absl::Seconds(20);

const ClusterWorkerState& Worker(const ClusterState& state, uint32_t number) {
  return state.workers[number - 1];
}

const PathParameters* FindPath(const ClusterState& state, uint32_t from, uint32_t to) {
  const auto found = std::ranges::find_if(state.paths, [&](const PathParameters& path) {
    return path.from == Worker(state, from).name && path.to == Worker(state, to).name;
  });
  return found == state.paths.end() ? nullptr : &*found;
}

uint32_t Count(const ClusterState& state) {
  return static_cast<uint32_t>(state.workers.size());
}

bool Delays(const ClusterState& state) {
  const relay::RelayConfig config = RelayConfigOf(state);
  return std::ranges::any_of(config.paths, [](const LinkQuality& q) { return !q.Perfect(); });
}

// What the qdisc that goes now has counted is not lost.
Status KeepCounters(const ClusterState& state, uint32_t number, CountedBefore* counted) {
  LH_ASSIGN_OR_RETURN(const Shaper shaper, ParseShaper(state.shaper));
  LH_ASSIGN_OR_RETURN(const std::optional<LinkCounters> counters,
                      ReadCounters(Uplink(state.name, number), shaper));
  if (!counters) return absl::OkStatus();
  counted->bytes += counters->bytes;
  counted->packets += counters->packets;
  counted->dropped_packets += counters->dropped_packets;
  counted->data_bytes += counters->data_bytes.value_or(0);
  counted->acknowledgement_bytes += counters->acknowledgement_bytes.value_or(0);
  return absl::OkStatus();
}

Status ApplyShapes(const ClusterState& before, ClusterState* after) {
  LH_ASSIGN_OR_RETURN(const Shaper shaper, ParseShaper(after->shaper));
  for (uint32_t number = 1; number <= Count(*after); ++number) {
    const LineShape from = UplinkShape(before, number), to = UplinkShape(*after, number);
    CountedBefore& counted = after->workers[number - 1].uplink_before;
    if (BeginsAnew(from, to)) LH_RETURN_IF_ERROR(KeepCounters(*after, number, &counted));
    if (!to.Shaped()) counted = {};
    LH_RETURN_IF_ERROR(Shape(Uplink(after->name, number), shaper, from, to));
    LH_RETURN_IF_ERROR(Shape(Downlink(after->name, number), shaper, DownlinkShape(before, number),
                             DownlinkShape(*after, number)));
  }
  return absl::OkStatus();
}

Status StopRelay(ClusterState* state) {
  LH_RETURN_IF_ERROR(KillProcess(state->relay));
  state->relay = {};
  for (uint32_t number = 1; number <= Count(*state); ++number) {
    LH_RETURN_IF_ERROR(SetOnBridge(state->name, number, Worker(*state, number).link_up));
  }
  return absl::OkStatus();
}

Status CheckChange(const ClusterState& before, const ClusterState& after) {
  if (before.relay.pid != 0 && NeedsRelay(after) && !IsAlive(before.relay)) {
    return absl::FailedPreconditionError(
        "the cluster's relay is dead; start it again (`longhaul cluster start relay`), then change "
        "the links");
  }
  return CheckLinks(after);
}

Status ChangeNetwork(const ClusterState& before, ClusterState* after) {
  LH_RETURN_IF_ERROR(ApplyShapes(before, after));
  const bool running = before.relay.pid != 0;
  if (!NeedsRelay(*after)) {
    if (running) return StopRelay(after);
    for (uint32_t number = 1; number <= Count(*after); ++number) {
      const bool up = Worker(*after, number).link_up;
      if (up == Worker(before, number).link_up) continue;
      LH_RETURN_IF_ERROR(SetOnBridge(after->name, number, up));
    }
    return absl::OkStatus();
  }
  if (!running) {
    Status started = StartRelay(after);
    if (!started.ok()) StopRelay(after).IgnoreError();
    return started;
  }
  const relay::RelayConfig config = RelayConfigOf(*after);
  return relay::AskRelay(RelaySocket(after->name), &config, Deadline::After(kRelayPatience))
      .status();
}

// Whatever tc has by now, it shapes as `state` says.
Status PutBack(ClusterState* state) {
  LH_ASSIGN_OR_RETURN(const Shaper shaper, ParseShaper(state->shaper));
  for (uint32_t number = 1; number <= Count(*state); ++number) {
    // What cannot be counted any more is lost.
    KeepCounters(*state, number, &state->workers[number - 1].uplink_before).IgnoreError();
    LH_RETURN_IF_ERROR(Reshape(Uplink(state->name, number), shaper, UplinkShape(*state, number)));
    LH_RETURN_IF_ERROR(
        Reshape(Downlink(state->name, number), shaper, DownlinkShape(*state, number)));
  }
  return absl::OkStatus();
}

}  // namespace

LinkQuality QualityOf(const ClusterState& state, uint32_t from, uint32_t to) {
  const PathParameters* const path = FindPath(state, from, to);
  if (path != nullptr && path->quality) return *path->quality;
  return Worse(Worker(state, from).link.quality, Worker(state, to).link.quality);
}

LineShape UplinkShape(const ClusterState& state, uint32_t number) {
  LineShape line;
  const ClusterWorkerState& worker = Worker(state, number);
  line.bits_per_second = worker.link.up_bits_per_second;
  const bool netem = state.delay_by == DelayBy::kNetem && Delays(state);
  line.netem = netem;
  if (netem) line.quality = worker.link.quality;
  for (const PathParameters& path : state.paths) {
    if (path.from != worker.name || (path.bits_per_second == 0 && !netem)) continue;
    for (const ClusterWorkerState& other : state.workers) {
      if (other.name == path.to) line.paths.push_back({other.data_address, path.bits_per_second});
    }
  }
  for (uint32_t to = 1; to <= Count(state); ++to) {
    if (to == number) continue;
    const LinkQuality quality = QualityOf(state, number, to);
    line.single_packets |= quality.loss > 0;
    if (!netem) continue;
    const std::string& address = Worker(state, to).data_address;
    const auto path = std::ranges::find(line.paths, address, &PathShape::to);
    if (path != line.paths.end()) {
      path->quality = quality;
    } else if (quality != line.quality) {
      line.paths.push_back({address, 0, quality});
    }
  }
  return line;
}

LineShape DownlinkShape(const ClusterState& state, uint32_t number) {
  return {.bits_per_second = Worker(state, number).link.down_bits_per_second};
}

relay::RelayConfig RelayConfigOf(const ClusterState& state) {
  relay::RelayConfig config;
  for (uint32_t from = 1; from <= Count(state); ++from) {
    config.ports.push_back({Downlink(state.name, from).device, Worker(state, from).link_up});
    for (uint32_t to = 1; to <= Count(state); ++to) {
      config.paths.push_back(from == to ? LinkQuality{} : QualityOf(state, from, to));
    }
  }
  return config;
}

bool NeedsRelay(const ClusterState& state) {
  return state.delay_by == DelayBy::kRelay && Delays(state);
}

Status CheckLinks(const ClusterState& state) {
  if (NeedsRelay(state)) LH_RETURN_IF_ERROR(relay::ProbePacketPort());
  for (const ClusterWorkerState& worker : state.workers) {
    LH_RETURN_IF_ERROR(CheckLinkQuality(worker.link.quality));
  }
  for (const PathParameters& path : state.paths) {
    if (path.quality) LH_RETURN_IF_ERROR(CheckLinkQuality(*path.quality));
    if (path.bits_per_second != 0 && state.shaper != ToString(Shaper::kHtb)) {
      return absl::FailedPreconditionError(
          "rates between two workers need the htb qdisc and u32 classifiers, which this kernel "
          "lacks: load the modules (modprobe sch_htb cls_u32), or give the workers' links rates");
    }
  }
  return absl::OkStatus();
}

std::string RelaySocket(const std::string& cluster) {
  return fmt::format("{}/relay.sock", ClusterStateFolder(cluster));
}

Command RelayCommand(const ClusterState& state) {
  return InNetwork(BridgeNetwork(state.name),
                   {state.relay_program, "cluster", "relay", "--socket", RelaySocket(state.name)});
}

Status StartRelay(ClusterState* state) {
  LH_ASSIGN_OR_RETURN(
      state->relay, StartDaemon(RelayCommand(*state), state->name, LogPath(*state, kRelayDaemon)));
  const std::string socket = RelaySocket(state->name);
  const Deadline deadline = Deadline::After(kRelayPatience);
  const auto check = [&] {
    return IsAlive(state->relay) ? absl::OkStatus() : DiedError(*state, kRelayDaemon);
  };
  LH_RETURN_IF_ERROR(relay::AskStartedRelay(socket, nullptr, deadline, check).status());
  // Packets of runs that go on are lost between these two, as in any short cut.
  for (uint32_t number = 1; number <= Count(*state); ++number) {
    LH_RETURN_IF_ERROR(SetOnBridge(state->name, number, false));
  }
  const relay::RelayConfig config = RelayConfigOf(*state);
  return relay::AskRelay(socket, &config, deadline).status();
}

Status ApplyLinks(const ClusterState& before, ClusterState* after) {
  if (Status possible = CheckChange(before, *after); !possible.ok()) {
    *after = before;
    return possible;
  }
  Status changed = ChangeNetwork(before, after);
  if (changed.ok()) return changed;
  *after = before;
  const Status back = PutBack(after);
  if (back.ok()) return changed;
  return absl::Status(changed.code(),
                      fmt::format("{}\nThe links could not be put back as they were, either: "
                                  "{}\nTake the cluster down and up again",
                                  Message(changed), Message(back)));
}

}  // namespace longhaul
