// What is known about a local cluster (`longhaul cluster up`), on disk, so that later commands find
// it.
//
// Where: <runtime root>/<name>/cluster.json, mode 0600 in a folder of mode 0700. The runtime root
// is
//   $XDG_RUNTIME_DIR/longhaul   where that variable is set,
//   /run/longhaul               for root otherwise,
//   /tmp/longhaul-<uid>         for everybody else.
// The file also holds process ids, so it means nothing after a reboot; the roots above vanish with
// one. `cluster down` works without it.
//
// Thread-safe: plain data and functions of the file system.
#ifndef LONGHAUL_COORDINATOR_CLI_CLUSTER_STATE_FILE_H_
#define LONGHAUL_COORDINATOR_CLI_CLUSTER_STATE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

// The cluster that `cluster` commands mean without --name.
inline constexpr std::string_view kDefaultClusterName = "local";

// A process, told from a later one with the same id by its start time.
struct ProcessIdentity {
  pid_t pid = 0;             // 0: none was started
  uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
};

struct ClusterWorkerState {
  std::string name;                   // "worker2"
  std::string network;                // its network namespace, "lh-local-w2"
  std::string data_address;           // "10.77.0.12", on the shaped interface
  std::string control_address;        // "10.78.0.12", on the unshaped one
  uint64_t rate_bits_per_second = 0;  // of its link, each way; 0 = not shaped
  bool link_up = true;
  ProcessIdentity process;
};

struct ClusterState {
  std::string name;
  std::string coordinator_address;  // "10.78.0.1:7070", reachable from this machine
  std::string token_file;
  std::string directory;       // logs and the daemons' state folders
  bool owns_directory = true;  // `down` removes it
  bool ready = false;          // `up` got to its end
  std::string shaper;          // how links are shaped: "htb" or "tbf" (shaping.h)
  std::string coordinator_program;
  std::string worker_program;
  std::string log_level;
  uint32_t subnet = 0;  // the third byte of its addresses
  ProcessIdentity coordinator;
  std::vector<ClusterWorkerState> workers;
};

// $XDG_RUNTIME_DIR/longhaul, /run/longhaul or /tmp/longhaul-<uid>.
std::string ClusterRuntimeRoot();
// <runtime root>/<name>.
std::string ClusterStateFolder(std::string_view name);

// A folder of mode 0700 that belongs to this user; made where there is none. Somebody else's is
// kFailedPrecondition.
Status MakePrivateFolder(const std::string& path);

// The state of a cluster that is up. Without a name: of "local", or else of the only one there is.
// kNotFound when there is none (or several, which the message lists), kFailedPrecondition when it
// may not be read, kInvalidArgument when the file is broken. Messages say what to do.
StatusOr<ClusterState> ReadClusterState(std::string_view name = {});
Status WriteClusterState(const ClusterState& state);
// Names of all clusters with a state file, sorted.
std::vector<std::string> ListClusters();

// For tests: the file's text.
std::string ClusterStateToJson(const ClusterState& state);
StatusOr<ClusterState> ClusterStateFromJson(std::string_view text);

}  // namespace longhaul

#endif  // LONGHAUL_COORDINATOR_CLI_CLUSTER_STATE_FILE_H_
