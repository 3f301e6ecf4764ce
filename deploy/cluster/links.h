// Applies the links of a cluster's state: by tc, and by the relay.
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

// Pure. Workers are counted from 1.
LinkQuality QualityOf(const ClusterState& state, uint32_t from, uint32_t to);
LineShape UplinkShape(const ClusterState& state, uint32_t number);
LineShape DownlinkShape(const ClusterState& state, uint32_t number);
relay::RelayConfig RelayConfigOf(const ClusterState& state);
bool NeedsRelay(const ClusterState& state);
// kFailedPrecondition if this cluster's kernel does not support what the links need.
Status CheckLinks(const ClusterState& state);

// The socket at which the relay listens.
std::string RelaySocket(const std::string& cluster);
Command RelayCommand(const ClusterState& state);

// Changes the network from `before` to `after`, the same cluster with other links. Starts or stops
// the relay as needed and records it in `after`. On an error, links and `after` are as in `before`.
Status ApplyLinks(const ClusterState& before, ClusterState* after);
// Starts the relay of a cluster that needs it, and configures it.
Status StartRelay(ClusterState* state);

}  // namespace longhaul
