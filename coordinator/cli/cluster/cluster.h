// What the `cluster` commands do: start, stop and change a local cluster. Each takes the cluster's
// lock, prints progress on standard error, and returns an error that is a sentence for the user.
// kCancelled: the user pressed Ctrl-C, and what was begun is undone. From a program's main thread,
// before it starts others.
#ifndef LONGHAUL_COORDINATOR_CLI_CLUSTER_CLUSTER_H_
#define LONGHAUL_COORDINATOR_CLI_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/cli/cluster/state_file.h"

namespace longhaul {

struct ClusterUpOptions {
  std::string name = std::string(kDefaultClusterName);
  uint32_t workers = 4;
  uint64_t rate_bits_per_second = 0;  // of every link, each way; 0 = not shaped
  // Logs and the daemons' state. Empty: /var/tmp/longhaul-<uid>/<name>, which `down` removes; a
  // folder named here is kept, and a later cluster in it goes on with its runs.
  std::string directory;
  std::string log_level = "info";
  // Empty: beside the running program.
  std::string coordinator_program;
  std::string worker_program;
  absl::Duration patience = absl::Seconds(60);  // for all workers to connect
};

// Brings a cluster up, or leaves nothing behind.
StatusOr<ClusterState> ClusterUp(const ClusterUpOptions& options);

// Takes a cluster down, whatever state it is in, with or without its state file. False: there was
// nothing.
StatusOr<bool> ClusterDown(const std::string& name);

// `worker` is a worker's name or "all".
struct LinkChange {
  std::string worker;
  bool set_rate = false;
  uint64_t rate_bits_per_second = 0;  // 0 = not shaped
  bool set_up = false;
  bool up = true;
};
Status ChangeLink(const std::string& name, const LinkChange& change);

// kill -9 of one daemon: "worker2" or "coordinator".
Status KillDaemon(const std::string& name, const std::string& daemon);
// Starts it again with the same state folder, and waits until it is connected.
Status RestartDaemon(const std::string& name, const std::string& daemon, absl::Duration patience);

}  // namespace longhaul

#endif  // LONGHAUL_COORDINATOR_CLI_CLUSTER_CLUSTER_H_
