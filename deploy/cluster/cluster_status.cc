#include "deploy/cluster/cluster_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "deploy/cluster/coordinator_probe.h"
#include "deploy/cluster/links.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/requirements.h"

namespace longhaul {
namespace {

using nlohmann::json;

json Number(const std::optional<uint64_t>& value) {
  return value ? json(*value) : json(nullptr);
}

json ToJson(const std::optional<LinkCounters>& counters) {
  if (!counters) return nullptr;
  return {{"bytes", counters->bytes},
          {"packets", counters->packets},
          {"data_bytes", Number(counters->data_bytes)},
          {"acknowledgement_bytes", Number(counters->acknowledgement_bytes)},
          {"dropped_packets", counters->dropped_packets},
          {"backlog_bytes", counters->backlog_bytes}};
}

json Rate(uint64_t bits_per_second) {
  return bits_per_second == 0 ? json(nullptr) : json(bits_per_second);
}

void PutQuality(const LinkQuality& quality, json* object) {
  (*object)["delay_seconds"] = absl::ToDoubleSeconds(quality.delay);
  (*object)["jitter_seconds"] = absl::ToDoubleSeconds(quality.jitter);
  (*object)["loss"] = quality.loss;
}

json RelayJson(const ClusterView& view) {
  if (view.state.relay.pid == 0) return nullptr;
  json relay = {{"pid", view.state.relay.pid},
                {"alive", view.relay_alive},
                {"answers", view.relay.has_value()}};
  const relay::RelayReport report = view.relay.value_or(relay::RelayReport{});
  relay["arrived_packets"] = report.arrived_packets;
  relay["lost_packets"] = report.lost_packets;
  relay["overflowed_packets"] = report.overflowed_packets;
  relay["missed_packets"] = report.missed_packets;
  relay["refused_packets"] = report.refused_packets;
  relay["failed_packets"] = report.failed_packets;
  relay["held_bytes"] = report.held_bytes;
  relay["threads"] = report.threads;
  relay["cpu_seconds"] = absl::ToDoubleSeconds(report.cpu_time);
  return relay;
}

json PathJson(const PathParameters& path) {
  json object = {{"from", path.from},
                 {"to", path.to},
                 {"bits_per_second", Rate(path.bits_per_second)},
                 {"delay_seconds", nullptr},
                 {"jitter_seconds", nullptr},
                 {"loss", nullptr}};
  if (path.quality) PutQuality(*path.quality, &object);
  return object;
}

void Add(const CountedBefore& before, LinkCounters* counters) {
  counters->bytes += before.bytes;
  counters->packets += before.packets;
  counters->dropped_packets += before.dropped_packets;
  if (counters->data_bytes) *counters->data_bytes += before.data_bytes;
  if (counters->acknowledgement_bytes) {
    *counters->acknowledgement_bytes += before.acknowledgement_bytes;
  }
}

// "10 Mbit/s", or "10 Mbit/s up, 20 Mbit/s down"; then the quality.
std::string FormatLink(const LinkParameters& link) {
  std::string text = FormatLinkRate(link.up_bits_per_second);
  if (link.up_bits_per_second != link.down_bits_per_second) {
    text += fmt::format(" up, {} down", FormatLinkRate(link.down_bits_per_second));
  }
  if (!link.quality.Perfect()) text += ", " + FormatLinkQuality(link.quality);
  return text;
}

std::string FormatPath(const PathParameters& path) {
  std::string text = fmt::format("  {} to {}: ", path.from, path.to);
  if (path.bits_per_second != 0)
    text += fmt::format("at most {}", FormatLinkRate(path.bits_per_second));
  if (path.quality) {
    const std::string quality = FormatLinkQuality(*path.quality);
    if (path.bits_per_second != 0) text += ", ";
    text += quality.empty() ? "no delay and no loss" : quality;
  }
  if (path.bits_per_second == 0 && !path.quality) text += "as the links are";
  return text + "\n";
}

std::string FormatRelay(const ClusterView& view) {
  if (view.state.relay.pid == 0) return "";
  if (!view.relay)
    return fmt::format("  relay        {}\n", view.relay_alive ? "does not answer" : "dead");
  std::string text = fmt::format(
      "  relay        {} packets, {} of CPU time in {}", view.relay->arrived_packets,
      longhaul::FormatDuration(view.relay->cpu_time),
      view.relay->threads == 1 ? "one thread" : fmt::format("{} threads", view.relay->threads));
  if (view.relay->lost_packets > 0) text += fmt::format(", {} lost", view.relay->lost_packets);
  // Not what anybody asked for: its limits.
  for (const auto& [count, what] :
       {std::pair(view.relay->overflowed_packets, "too many to hold"),
        std::pair(view.relay->missed_packets, "too many at once"),
        std::pair(view.relay->refused_packets, "more than the receiver's queue had room for"),
        std::pair(view.relay->failed_packets, "that could not be sent (its log says why)")}) {
    if (count > 0) text += fmt::format(", {} {}", count, what);
  }
  return text + "\n";
}

// "1.20 MB + 12.0 KB": data and acknowledgements.
std::string FormatCounters(const std::optional<LinkCounters>& counters) {
  if (!counters) return "-";
  if (!counters->data_bytes || !counters->acknowledgement_bytes) {
    return FormatBytes(static_cast<double>(counters->bytes));
  }
  return fmt::format("{} + {}", FormatBytes(static_cast<double>(*counters->data_bytes)),
                     FormatBytes(static_cast<double>(*counters->acknowledgement_bytes)));
}

std::string_view WorkerWord(const WorkerView& view) {
  if (!view.network_there) return "no network";
  if (!view.alive) return "dead";
  return view.connected ? "connected" : "not connected";
}

}  // namespace

StatusOr<ClusterView> ObserveCluster(const std::string& name) {
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  ClusterView view;
  LH_ASSIGN_OR_RETURN(view.state, ReadClusterState(name));
  view.coordinator_alive = IsAlive(view.state.coordinator);
  ConnectedWorkers connected;
  if (view.coordinator_alive) {
    CoordinatorProbe probe(view.state);
    if (auto answer = probe.Connected(absl::Seconds(2)); answer.ok()) {
      view.coordinator_answers = true;
      connected = *std::move(answer);
    }
  }
  if (view.state.relay.pid != 0) {
    view.relay_alive = IsAlive(view.state.relay);
    auto report = relay::AskRelay(RelaySocket(name), nullptr, Deadline::After(absl::Seconds(2)));
    if (view.relay_alive && report.ok()) view.relay = *report;
  }
  const NetworkRemains network = FindNetwork(name);
  const StatusOr<Shaper> shaper = ParseShaper(view.state.shaper);
  for (uint32_t number = 1; number <= view.state.workers.size(); ++number) {
    const ClusterWorkerState& state = view.state.workers[number - 1];
    WorkerView worker;
    worker.alive = IsAlive(state.process);
    worker.connected = connected.contains({state.name, state.process.pid});
    worker.network_there = std::ranges::binary_search(network.networks, state.network);
    if (worker.network_there && shaper.ok() && UplinkShape(view.state, number).Shaped()) {
      LH_ASSIGN_OR_RETURN(worker.uplink, ReadCounters(Uplink(name, number), *shaper));
      if (worker.uplink) Add(state.uplink_before, &*worker.uplink);
    }
    if (worker.network_there && shaper.ok() && DownlinkShape(view.state, number).Shaped()) {
      LH_ASSIGN_OR_RETURN(worker.downlink, ReadCounters(Downlink(name, number), *shaper));
    }
    view.workers.push_back(worker);
  }
  return view;
}

std::string FormatClusterTable(const ClusterView& view) {
  const ClusterState& state = view.state;
  std::string text = fmt::format(
      "cluster '{}'{}\n  coordinator  {}  {}\n  token file   {}\n  directory    {}\n{}\n",
      state.name, state.ready ? "" : " (did not finish starting; take it down)",
      state.coordinator_address,
      !view.coordinator_alive ? "dead" : (view.coordinator_answers ? "answers" : "does not answer"),
      state.token_file, state.directory, FormatRelay(view));
  if (state.insecure) text += "  INSECURE     its daemons talk without encryption\n";
  const bool apart = state.shaper == ToString(Shaper::kHtb);
  const std::string sent = apart ? "sent (data + acks)" : "sent";
  const std::string received = apart ? "received (data + acks)" : "received";
  constexpr std::string_view kRow = "  {:<10}{:<15}{:<13}{:<{}}{:<24}{:<24}{:>8}\n";
  size_t link_width = 14;
  for (const ClusterWorkerState& worker : state.workers) {
    link_width = std::max(link_width, FormatLink(worker.link).size() + 2);
  }
  text += fmt::format(fmt::runtime(kRow), "worker", "state", "address", "link", link_width, sent,
                      received, "dropped");
  for (size_t index = 0; index < view.workers.size(); ++index) {
    const ClusterWorkerState& worker = state.workers[index];
    const WorkerView& seen = view.workers[index];
    const uint64_t dropped = (seen.uplink ? seen.uplink->dropped_packets : 0) +
                             (seen.downlink ? seen.downlink->dropped_packets : 0);
    text += fmt::format(fmt::runtime(kRow), worker.name, WorkerWord(seen), worker.data_address,
                        worker.link_up ? FormatLink(worker.link) : "down", link_width,
                        FormatCounters(seen.uplink), FormatCounters(seen.downlink),
                        seen.uplink ? std::to_string(dropped) : "-");
  }
  if (!state.paths.empty()) text += '\n';
  for (const PathParameters& path : state.paths) text += FormatPath(path);
  if (!apart) {
    text += "\nAcknowledgements are not counted apart: this kernel lacks htb or u32 classifiers.\n";
  }
  return text;
}

std::string FormatClusterJson(const ClusterView& view) {
  const ClusterState& state = view.state;
  json workers = json::array();
  for (size_t index = 0; index < view.workers.size(); ++index) {
    const ClusterWorkerState& worker = state.workers[index];
    const WorkerView& seen = view.workers[index];
    json entry = {{"name", worker.name},
                  {"pid", worker.process.pid},
                  {"alive", seen.alive},
                  {"connected", seen.connected},
                  {"network", worker.network},
                  {"device", worker.device},
                  {"network_there", seen.network_there},
                  {"data_address", worker.data_address},
                  {"up_bits_per_second", Rate(worker.link.up_bits_per_second)},
                  {"down_bits_per_second", Rate(worker.link.down_bits_per_second)},
                  {"link_up", worker.link_up},
                  {"uplink", ToJson(seen.uplink)},
                  {"downlink", ToJson(seen.downlink)}};
    PutQuality(worker.link.quality, &entry);
    workers.push_back(std::move(entry));
  }
  json paths = json::array();
  for (const PathParameters& path : state.paths) paths.push_back(PathJson(path));
  const json document = {{"name", state.name},
                         {"ready", state.ready},
                         {"shaper", state.shaper},
                         {"delay_by", ToString(state.delay_by)},
                         {"relay", RelayJson(view)},
                         {"paths", paths},
                         {"directory", state.directory},
                         {"token_file", state.token_file},
                         {"insecure", state.insecure},
                         {"coordinator",
                          {{"address", state.coordinator_address},
                           {"pid", state.coordinator.pid},
                           {"alive", view.coordinator_alive},
                           {"answers", view.coordinator_answers}}},
                         {"workers", workers}};
  return document.dump(2) + "\n";
}

}  // namespace longhaul
