// From what a cluster's links are asked to be (its state) to what tc and the relay do.
#ifndef LONGHAUL_DEPLOY_CLUSTER_LINKS_H_
#define LONGHAUL_DEPLOY_CLUSTER_LINKS_H_

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
// What the links ask for and this cluster's kernel cannot do: kFailedPrecondition.
Status CheckLinks(const ClusterState& state);

// Where the relay listens.
std::string RelaySocket(const std::string& cluster);
Command RelayCommand(const ClusterState& state);

// Makes the network of `after` out of that of `before`, the same cluster with other links; starts
// and stops the relay as it is needed and notes it in `after`. Where that fails, `after` is
// `before` again, and so are its links.
Status ApplyLinks(const ClusterState& before, ClusterState* after);
// Starts the relay of a cluster that needs it, and tells it what to do.
Status StartRelay(ClusterState* state);

}  // namespace longhaul

#endif  // LONGHAUL_DEPLOY_CLUSTER_LINKS_H_
