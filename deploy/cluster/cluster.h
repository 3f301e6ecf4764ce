// The `cluster` commands: start, stop and change a local cluster, which is a coordinator and
// workers in network namespaces of this machine (network.h). Each function takes the cluster's
// lock, prints progress on standard error, and returns an error that is a sentence for the user.
// Call these functions from a program's main thread, before other threads start.
//
// Errors of all: kFailedPrecondition: the machine lacks a right, a tool or a kernel module, or
// another command has held the lock for 60 s (ClusterUp does not wait). kNotFound, except for
// ClusterUp and ClusterDown: there is no such cluster. kInternal: a tool or a daemon failed.
// kCancelled: the user pressed Ctrl-C while ClusterUp or RestartDaemon waited. ClusterUp is then
// undone; the daemon of RestartDaemon keeps running. The other functions finish before Ctrl-C acts.
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

// The largest ClusterUpOptions::devices_per_worker, more than any machine has.
inline constexpr uint32_t kMaxDevicesPerWorker = 64;

struct ClusterUpOptions {
  std::string name = std::string(kDefaultClusterName);
  uint32_t workers = 4;
  LinkParameters link;  // of every worker
  // The workers' devices, in the form that ShareDevices takes (base/device_name.h).
  std::string device = "cpu";
  uint32_t devices_per_worker = 1;       // more than 1: for stages with tensor parallelism
  std::optional<TopologySpec> topology;  // paths between workers; nullopt: only the links above
  std::optional<DelayBy> delay_by;       // nullopt: netem where the kernel has it, else the relay
  // Folder for logs and the daemons' state. ClusterDown keeps this folder, and a later cluster in
  // the same folder continues the runs. Empty: /var/tmp/longhaul-<uid>/<name>, which ClusterDown
  // removes.
  std::string directory;
  std::string log_level = "info";
  std::string python_codecs;  // modules with commas between, for longhaul-worker's --python-codec
  bool insecure = false;      // daemons without TLS, and one token for all
  // Paths of the daemons' programs. Empty: the file beside the running program.
  std::string coordinator_program;
  std::string worker_program;
  std::string relay_program;                    // empty: the running program
  absl::Duration patience = absl::Seconds(60);  // time limit until all workers are connected
};

// Returns " --name NAME" for commands in messages, or "" for the default name.
std::string NameOption(const std::string& name);

// Brings a cluster up. On an error no process, network or state file of the new cluster stays.
// kInvalidArgument: an option is wrong. kAlreadyExists: the cluster, or a remainder of it, is
// there. kDeadlineExceeded: not all workers were connected in time.
StatusOr<ClusterState> ClusterUp(const ClusterUpOptions& options);

// Takes a cluster down in any state, with or without its state file. False: there was no cluster,
// which is not an error. kInvalidArgument: not a cluster's name.
StatusOr<bool> ClusterDown(const std::string& name);

// A change of a link or path. A value that is nullopt here stays as it is.
struct LinkChange {
  std::string worker;  // its name, or "all"
  // Empty: changes the worker's link, to and from all others. A worker's name: changes the path
  // from `worker` to the named worker. The delay, jitter and loss of a path replace those of the
  // links. The path's up_bits_per_second limits this path, in addition to the links' own rates.
  std::string to;
  std::optional<uint64_t> up_bits_per_second;    // 0 = not shaped
  std::optional<uint64_t> down_bits_per_second;  // not with `to`
  std::optional<absl::Duration> delay;
  std::optional<absl::Duration> jitter;
  std::optional<double> loss;     // share of packets; 0 to below 1
  std::optional<bool> connected;  // false: as if the line were cut; not with `to`
};
// Replaces all paths of a cluster by those of a topology. The workers' own links do not change.
// kInvalidArgument if the topology names workers that the cluster does not have.
Status ApplyTopology(const std::string& name, const TopologySpec& topology);

// Makes all changes or none, while runs go on. kInvalidArgument: one of them is impossible.
Status ChangeLinks(const std::string& name, const std::vector<LinkChange>& changes);

// Kills one daemon with SIGKILL: "worker2", "coordinator" or "relay". kFailedPrecondition: the
// daemon is not running. kInvalidArgument: the cluster has no such daemon.
Status KillDaemon(const std::string& name, const std::string& daemon);
// Starts a dead daemon again with the same state folder. Waits at most `patience` until the worker
// is connected or the coordinator answers; for the relay, waits at most 20 s. kFailedPrecondition:
// the daemon is running. kInvalidArgument: the cluster has no such daemon. kDeadlineExceeded: the
// worker is not connected, or the coordinator does not answer, in time.
Status RestartDaemon(const std::string& name, const std::string& daemon, absl::Duration patience);

}  // namespace longhaul
