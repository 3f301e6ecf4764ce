// `longhaul cluster status`: the current state of a cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "deploy/cluster/relay/control.h"
#include "deploy/cluster/shaping.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {

struct WorkerView {
  bool alive = false;
  bool connected = false;      // to the coordinator
  bool network_there = false;  // its network namespace exists
  // Traffic that the worker has sent and received over the data network. nullopt while the link is
  // not shaped, because only a shaper counts exactly.
  std::optional<LinkCounters> uplink;
  std::optional<LinkCounters> downlink;
};

struct ClusterView {
  ClusterState state;
  bool coordinator_alive = false;
  bool coordinator_answers = false;
  bool relay_alive = false;
  std::optional<relay::RelayReport> relay;  // nullopt: there is no relay, or it does not answer
  std::vector<WorkerView> workers;          // in the order of state.workers
};

// Reads processes and counters, and asks the coordinator and the relay. If one of these two does
// not answer, the call takes a few seconds longer. Empty `name` and errors: as ReadClusterState
// (state_file.h). kFailedPrecondition also if the machine lacks rights or tools. kInternal: tc
// fails.
StatusOr<ClusterView> ObserveCluster(const std::string& name);

std::string FormatClusterTable(const ClusterView& view);
// {"name", "ready", "shaper", "directory", "token_file", "insecure",
//  "coordinator": {"address", "pid", "alive", "answers"},
//  "delay_by": "netem" or "relay",
//  "relay": null (not needed) or {"pid", "alive", "answers", and (all 0 if it does not answer)
//            "arrived_packets", "lost_packets", "overflowed_packets", "missed_packets",
//            "refused_packets", "failed_packets", "held_bytes", "threads", "cpu_seconds"},
//  "workers": [{"name", "pid", "alive", "connected", "network", "device", "network_there",
//               "data_address", "up_bits_per_second", "down_bits_per_second" (null: not shaped),
//               "delay_seconds", "jitter_seconds", "loss", "link_up",
//               "uplink", "downlink": null or {"bytes", "packets", "data_bytes",
//               "acknowledgement_bytes" (null with tbf), "dropped_packets", "backlog_bytes"}}],
//  "paths": [{"from", "to", "bits_per_second" (null: as the links),
//             "delay_seconds", "jitter_seconds", "loss" (null: as the links)}]}
std::string FormatClusterJson(const ClusterView& view);

}  // namespace longhaul
