// The state of a local cluster (`longhaul cluster up`) on disk, where later commands find it.
//
// Where: <runtime root>/<name>/cluster.json, mode 0600 in a folder of mode 0700. The runtime root
// is
//   $XDG_RUNTIME_DIR/longhaul   where that variable is set,
//   /run/longhaul               for root otherwise,
//   /tmp/longhaul-<uid>         for everybody else.
// The file holds process ids, so it means nothing after a reboot, which also removes the roots
// above. `cluster down` works without the file.
//
// Thread-safe: plain data and functions of the file system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/words.h"
#include "run/file/link_quality.h"

namespace longhaul {

// The cluster of `cluster` commands without --name.
inline constexpr std::string_view kDefaultClusterName = "local";

// A process. Its start time distinguishes it from a later process with the same id.
struct ProcessIdentity {
  pid_t pid = 0;             // 0: none was started
  uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
};

// The parameters of a worker's link to all others.
struct LinkParameters {
  uint64_t up_bits_per_second = 0;    // rate of sending; 0 = not shaped
  uint64_t down_bits_per_second = 0;  // rate of receiving; 0 = not shaped
  // Between two workers, the larger delay, jitter and loss of their two links apply, in each
  // direction.
  LinkQuality quality;
  friend bool operator==(const LinkParameters&, const LinkParameters&) = default;
};

// The parameters of the path from one worker to another, if they differ from the links'.
struct PathParameters {
  std::string from, to;                // names of workers
  uint64_t bits_per_second = 0;        // maximum; 0 = the links' rate
  std::optional<LinkQuality> quality;  // replaces the links'
  friend bool operator==(const PathParameters&, const PathParameters&) = default;
};

// The counts for one direction of a link by qdiscs that have been removed.
struct CountedBefore {
  uint64_t bytes = 0, packets = 0, dropped_packets = 0, data_bytes = 0, acknowledgement_bytes = 0;
};

// What emulates delay, jitter and loss.
enum class DelayBy : uint8_t { kRelay, kNetem };
constexpr std::string_view ToString(DelayBy by) {
  return WordOf(by, {"relay", "netem"});
}

struct ClusterWorkerState {
  std::string name;             // "worker2"
  std::string network;          // its network namespace, "lh-local-w2"
  std::string data_address;     // "10.77.0.12", on the shaped interface
  std::string control_address;  // "10.78.0.12", on the unshaped one
  LinkParameters link;
  bool link_up = true;
  ProcessIdentity process;
  CountedBefore uplink_before = {};
  std::string device = "cpu";  // device option of longhaul-worker: "cpu,cpu"
};

struct ClusterState {
  std::string name;
  std::string coordinator_address;  // "10.78.0.1:7070", reachable from this machine
  std::string token_file;
  bool insecure = false;       // its daemons talk without TLS
  std::string directory;       // logs and the daemons' state folders
  bool owns_directory = true;  // `down` removes it
  bool ready = false;          // `up` has finished
  std::string shaper;          // how links are shaped: "htb" or "tbf" (shaping.h)
  DelayBy delay_by = DelayBy::kRelay;
  std::string coordinator_program;
  std::string worker_program;
  std::string relay_program;
  std::string log_level;
  uint32_t subnet = 0;  // the third byte of its addresses
  ProcessIdentity coordinator;
  ProcessIdentity relay;  // set while some link needs it
  std::vector<ClusterWorkerState> workers;
  // In the order in which they were first requested. A path is never removed.
  std::vector<PathParameters> paths;
};

// $XDG_RUNTIME_DIR/longhaul, /run/longhaul or /tmp/longhaul-<uid>.
std::string ClusterRuntimeRoot();
// <runtime root>/<name>.
std::string ClusterStateFolder(std::string_view name);

// Makes a folder of mode 0700 that belongs to this user, or uses an existing one.
// kFailedPrecondition if the folder belongs to another user.
Status MakePrivateFolder(const std::string& path);

// Reads the state of a cluster. Without a name: of "local" if there is one, else of the only
// cluster. kNotFound: there is none, or there are several, which the message lists.
// kFailedPrecondition: this user may not read the file. kInvalidArgument: the file is broken, or of
// another version. Messages say what to do.
StatusOr<ClusterState> ReadClusterState(std::string_view name = {});
Status WriteClusterState(const ClusterState& state);
// Returns the names of all clusters with a state file, sorted.
std::vector<std::string> ListClusters();

// Returns the cluster whose coordinator has this address; nullopt: no cluster of this user. A
// cluster whose coordinator and workers are all gone does not count: a killed cluster leaves its
// file behind, and a later cluster may have its address.
std::optional<ClusterState> ClusterAt(std::string_view coordinator_address);

// For tests: the file's text.
std::string ClusterStateToJson(const ClusterState& state);
StatusOr<ClusterState> ClusterStateFromJson(std::string_view text);

}  // namespace longhaul
