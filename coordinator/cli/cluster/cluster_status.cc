#include "coordinator/cli/cluster/cluster_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/token.h"
#include "base/units.h"
#include "coordinator/cli/cluster/coordinator_probe.h"
#include "coordinator/cli/cluster/network.h"
#include "coordinator/cli/cluster/process.h"
#include "coordinator/cli/cluster/requirements.h"

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
  if (StatusOr<std::string> token = LoadToken(view.state.token_file);
      token.ok() && view.coordinator_alive) {
    CoordinatorProbe probe(view.state.coordinator_address, *token);
    if (auto answer = probe.Connected(absl::Seconds(2)); answer.ok()) {
      view.coordinator_answers = true;
      connected = *std::move(answer);
    }
  }
  const NetworkRemains network = FindNetwork(name);
  const StatusOr<Shaper> shaper = ParseShaper(view.state.shaper);
  for (uint32_t number = 1; number <= view.state.workers.size(); ++number) {
    const ClusterWorkerState& state = view.state.workers[number - 1];
    WorkerView worker;
    worker.alive = IsAlive(state.process);
    worker.connected = connected.contains({state.name, state.process.pid});
    worker.network_there = std::ranges::binary_search(network.networks, state.network);
    if (worker.network_there && shaper.ok() && state.rate_bits_per_second != 0) {
      LH_ASSIGN_OR_RETURN(worker.uplink, ReadCounters(Uplink(name, number), *shaper));
      LH_ASSIGN_OR_RETURN(worker.downlink, ReadCounters(Downlink(name, number), *shaper));
    }
    view.workers.push_back(worker);
  }
  return view;
}

std::string FormatClusterTable(const ClusterView& view) {
  const ClusterState& state = view.state;
  std::string text = fmt::format(
      "cluster '{}'{}\n  coordinator  {}  {}\n  token file   {}\n  directory    {}\n\n", state.name,
      state.ready ? "" : " (did not finish starting; take it down)", state.coordinator_address,
      !view.coordinator_alive ? "dead" : (view.coordinator_answers ? "answers" : "does not answer"),
      state.token_file, state.directory);
  const bool apart = state.shaper == ToString(Shaper::kHtb);
  const std::string sent = apart ? "sent (data + acks)" : "sent";
  const std::string received = apart ? "received (data + acks)" : "received";
  constexpr std::string_view kRow = "  {:<10}{:<15}{:<13}{:<14}{:<24}{:<24}{:>8}\n";
  text += fmt::format(fmt::runtime(kRow), "worker", "state", "address", "link", sent, received,
                      "dropped");
  for (size_t index = 0; index < view.workers.size(); ++index) {
    const ClusterWorkerState& worker = state.workers[index];
    const WorkerView& seen = view.workers[index];
    const uint64_t dropped = (seen.uplink ? seen.uplink->dropped_packets : 0) +
                             (seen.downlink ? seen.downlink->dropped_packets : 0);
    text += fmt::format(fmt::runtime(kRow), worker.name, WorkerWord(seen), worker.data_address,
                        worker.link_up ? FormatLinkRate(worker.rate_bits_per_second) : "down",
                        FormatCounters(seen.uplink), FormatCounters(seen.downlink),
                        seen.uplink ? std::to_string(dropped) : "-");
  }
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
    workers.push_back(
        {{"name", worker.name},
         {"pid", worker.process.pid},
         {"alive", seen.alive},
         {"connected", seen.connected},
         {"network", worker.network},
         {"network_there", seen.network_there},
         {"data_address", worker.data_address},
         {"rate_bits_per_second",
          worker.rate_bits_per_second == 0 ? json(nullptr) : json(worker.rate_bits_per_second)},
         {"link_up", worker.link_up},
         {"uplink", ToJson(seen.uplink)},
         {"downlink", ToJson(seen.downlink)}});
  }
  const json document = {{"name", state.name},
                         {"ready", state.ready},
                         {"shaper", state.shaper},
                         {"directory", state.directory},
                         {"token_file", state.token_file},
                         {"coordinator",
                          {{"address", state.coordinator_address},
                           {"pid", state.coordinator.pid},
                           {"alive", view.coordinator_alive},
                           {"answers", view.coordinator_answers}}},
                         {"workers", workers}};
  return document.dump(2) + "\n";
}

}  // namespace longhaul
