// What the `cluster` commands do: start, stop and change a local cluster. Each takes the cluster's
// lock, prints progress on standard error, and returns an error that is a sentence for the user.
// kCancelled: the user pressed Ctrl-C, and what was begun is undone. From a program's main thread,
// before it starts others.
#ifndef LONGHAUL_DEPLOY_CLUSTER_CLUSTER_H_
#define LONGHAUL_DEPLOY_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "deploy/cluster/state_file.h"
#include "run/file/topology.h"

namespace longhaul {

struct ClusterUpOptions {
  std::string name = std::string(kDefaultClusterName);
  uint32_t workers = 4;
  LinkParameters link;  // of every worker
  // What workers compute on, as ShareDevices reads it.
  std::string device = "cpu";
  std::optional<TopologySpec> topology;
  std::optional<DelayBy> delay_by;  // nullopt: netem where the kernel has it, else the relay
  // Logs and the daemons' state. Empty: /var/tmp/longhaul-<uid>/<name>, which `down` removes; a
  // folder named here is kept, and a later cluster in it goes on with its runs.
  std::string directory;
  std::string log_level = "info";
  // Empty: beside the running program.
  std::string coordinator_program;
  std::string worker_program;
  std::string relay_program;                    // empty: the running program
  absl::Duration patience = absl::Seconds(60);  // for all workers to connect
};

// " --name NAME" for a command that is told to a user, "" for the default name.
std::string NameOption(const std::string& name);

// Brings a cluster up, or leaves nothing behind.
StatusOr<ClusterState> ClusterUp(const ClusterUpOptions& options);

// Takes a cluster down, whatever state it is in, with or without its state file. False: there was
// nothing.
StatusOr<bool> ClusterDown(const std::string& name);

// What is set changes, the rest stays.
struct LinkChange {
  std::string worker;  // its name, or "all"
  // Empty: the worker's link, to and from all others. A worker's name: what `worker` sends to that
  // one, for which these then count instead of what the links say, up_bits_per_second beside them.
  std::string to;
  std::optional<uint64_t> up_bits_per_second;    // 0 = not shaped
  std::optional<uint64_t> down_bits_per_second;  // not with `to`
  std::optional<absl::Duration> delay;
  std::optional<absl::Duration> jitter;
  std::optional<double> loss;
  std::optional<bool> connected;  // not with `to`
};
// What a topology says of a cluster's workers takes the place of whatever was said of what one
// worker sends to another; the workers' own links stay. kInvalidArgument for workers that the
// cluster does not have.
Status ApplyTopology(const std::string& name, const TopologySpec& topology);

// All of them at once, while runs go on, or none: kInvalidArgument for what cannot be.
Status ChangeLinks(const std::string& name, const std::vector<LinkChange>& changes);

// kill -9 of one daemon: "worker2", "coordinator" or "relay".
Status KillDaemon(const std::string& name, const std::string& daemon);
// Starts it again with the same state folder, and waits until it is connected.
Status RestartDaemon(const std::string& name, const std::string& daemon, absl::Duration patience);

}  // namespace longhaul

#endif  // LONGHAUL_DEPLOY_CLUSTER_CLUSTER_H_
