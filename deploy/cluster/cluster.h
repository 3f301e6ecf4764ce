// The `cluster` commands: start, stop and change a local cluster. Each takes the cluster's lock,
// prints progress on standard error, and returns an error that is a sentence for the user.
// kCancelled: the user pressed Ctrl-C. ClusterUp is then undone; a daemon that RestartDaemon has
// started goes on. Call these functions from a program's main thread, before other threads start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "deploy/cluster/state_file.h"
#include "run/file/topology.h"

namespace longhaul {

// A limit that no machine reaches.
inline constexpr uint32_t kMaxDevicesPerWorker = 64;

struct ClusterUpOptions {
  std::string name = std::string(kDefaultClusterName);
  uint32_t workers = 4;
  LinkParameters link;  // of every worker
  // The workers' devices, in the form that ShareDevices takes (base/device_name.h).
  std::string device = "cpu";
  uint32_t devices_per_worker = 1;  // for groups of ranks
  std::optional<TopologySpec> topology;
  std::optional<DelayBy> delay_by;  // nullopt: netem where the kernel has it, else the relay
  // Folder for logs and the daemons' state. `down` keeps it, and a later cluster in the same folder
  // continues the runs. Empty: /var/tmp/longhaul-<uid>/<name>, which `down` removes.
  std::string directory;
  std::string log_level = "info";
  bool insecure = false;  // daemons without TLS, and one token for all
  // The daemons' programs. Empty: the file beside the running program.
  std::string coordinator_program;
  std::string worker_program;
  std::string relay_program;                    // empty: the running program
  absl::Duration patience = absl::Seconds(60);  // for all workers to connect
};

// Returns " --name NAME" for commands in messages, or "" for the default name.
std::string NameOption(const std::string& name);

// Brings a cluster up. On an error it leaves nothing behind.
StatusOr<ClusterState> ClusterUp(const ClusterUpOptions& options);

// Takes a cluster down in any state, with or without its state file. False: there was no cluster.
StatusOr<bool> ClusterDown(const std::string& name);

// A change of a link or path. Values that are not set here stay as they are.
struct LinkChange {
  std::string worker;  // its name, or "all"
  // Empty: changes the worker's link, to and from all others. A worker's name: changes the path
  // from `worker` to the named one. The delay, jitter and loss of a path replace those of the
  // links. Its up_bits_per_second is a limit of this path, beside the links' own rates.
  std::string to;
  std::optional<uint64_t> up_bits_per_second;    // 0 = not shaped
  std::optional<uint64_t> down_bits_per_second;  // not with `to`
  std::optional<absl::Duration> delay;
  std::optional<absl::Duration> jitter;
  std::optional<double> loss;
  std::optional<bool> connected;  // not with `to`
};
// Replaces all paths of a cluster by those of a topology. The workers' own links do not change.
// kInvalidArgument if the topology names workers that the cluster does not have.
Status ApplyTopology(const std::string& name, const TopologySpec& topology);

// Makes all changes or none, while runs go on. kInvalidArgument: one of them is impossible.
Status ChangeLinks(const std::string& name, const std::vector<LinkChange>& changes);

// Kills one daemon with SIGKILL: "worker2", "coordinator" or "relay".
Status KillDaemon(const std::string& name, const std::string& daemon);
// Starts a dead daemon again with the same state folder. Waits at most `patience` until it is in
// use: until the worker is connected, or the coordinator answers.
Status RestartDaemon(const std::string& name, const std::string& daemon, absl::Duration patience);

}  // namespace longhaul
