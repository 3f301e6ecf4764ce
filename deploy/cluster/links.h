// Makes the network of a cluster have the links of the cluster's state, by tc and by the relay.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/relay/control.h"
#include "deploy/cluster/shaping.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {

inline constexpr std::string_view kRelayDaemon = "relay";

// The functions below derive from the state: the quality of the path between two workers, the shape
// of what a worker sends and receives, and whether and how the relay delays. Pure. Workers are
// numbered from 1.
LinkQuality QualityOf(const ClusterState& state, uint32_t from, uint32_t to);
LineShape UplinkShape(const ClusterState& state, uint32_t number);
LineShape DownlinkShape(const ClusterState& state, uint32_t number);
relay::RelayConfig RelayConfigOf(const ClusterState& state);
bool NeedsRelay(const ClusterState& state);
// Checks that links like these are possible. kFailedPrecondition: this kernel does not support what
// they need. kInvalidArgument: a delay, jitter or loss is impossible.
Status CheckLinks(const ClusterState& state);

// The socket at which the relay listens.
std::string RelaySocket(const std::string& cluster);
Command RelayCommand(const ClusterState& state);

// Changes the network from the links of `before` to those of `after`, a state of the same cluster.
// Starts or stops the relay as needed and records it in `after`. On an error, has tc shape all
// lines as in `before` again, and sets `after` to `before`.
Status ApplyLinks(const ClusterState& before, ClusterState* after);
// Starts the relay of a cluster that needs one, takes the workers' ports off the bridge, and
// configures the relay.
Status StartRelay(ClusterState* state);

}  // namespace longhaul
