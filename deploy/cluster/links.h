// Gives the network of a cluster the links that the cluster's state describes, by tc and by the
// relay (relay/relay.h). Threads: the program's main thread (process.h).
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

// The next five functions derive values from the state. Pure. Workers are numbered from 1; `from`,
// `to` and `number` must be numbers of workers of the state.
//
// Returns delay, jitter and loss of the path from one worker to another.
LinkQuality QualityOf(const ClusterState& state, uint32_t from, uint32_t to);
// Return how tc shapes the data that a worker sends (uplink) and receives (downlink).
LineShape UplinkShape(const ClusterState& state, uint32_t number);
LineShape DownlinkShape(const ClusterState& state, uint32_t number);
// Returns the configuration of the relay, whether the cluster needs a relay or not.
relay::RelayConfig RelayConfigOf(const ClusterState& state);
// Whether a path has delay, jitter or loss and the cluster does not use netem for them.
bool NeedsRelay(const ClusterState& state);
// Checks that the links of `state` are possible. kFailedPrecondition: this kernel or process cannot
// emulate them. kInvalidArgument: a delay, jitter or loss is impossible.
Status CheckLinks(const ClusterState& state);

// Returns the path of the Unix socket at which the relay listens.
std::string RelaySocket(const std::string& cluster);
Command RelayCommand(const ClusterState& state);

// Changes the network from the links of `before` to those of `*after`, a state of the same cluster.
// Starts or stops the relay as needed, and notes the relay's process and counters in `*after`. Does
// not write the state file. On an error, sets `*after` to `before`; tc then shapes all lines as in
// `before`. Errors: those of CheckLinks, kFailedPrecondition if the relay is dead, kInternal or
// kUnavailable if tc or the relay fails.
Status ApplyLinks(const ClusterState& before, ClusterState* after);
// Starts the relay of a cluster that needs one, takes the workers' ports off the bridge, configures
// the relay, and notes its process in `*state`. Waits at most 20 s. kInternal: the relay has died.
// kUnavailable: the relay does not answer.
Status StartRelay(ClusterState* state);

}  // namespace longhaul
