// The state of a local cluster (`longhaul cluster up`) on disk, where later commands find it.
//
// Where: <runtime root>/<name>/cluster.json, mode 0600 in a folder of mode 0700. The runtime root
// is
//   $XDG_RUNTIME_DIR/longhaul   where that variable is set,
//   /run/longhaul               for root otherwise,
//   /tmp/longhaul-<uid>         for everybody else.
// The file holds process ids, so its contents are void after a reboot, which also removes the
// folders above. `cluster down` works without the file.
//
// Plain data, and functions that only use the file system. Any thread may call the functions.
// Errors: by errno, unless a function says otherwise.
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

// The name of the cluster for `longhaul cluster` commands without --name.
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

// Counters of one direction of a link, summed over qdiscs that have been removed.
struct CountedBefore {
  uint64_t bytes = 0, packets = 0, dropped_packets = 0, data_bytes = 0, acknowledgement_bytes = 0;
};

// The part of the cluster that emulates delay, jitter and loss: the process of relay/relay.h, or
// the kernel's qdisc netem.
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
  bool link_up = true;  // false: cut off from all other workers
  ProcessIdentity process;
  CountedBefore uplink_before = {};  // to add to the counters of the qdisc of now
  std::string device = "cpu";        // value of longhaul-worker's --device: "cpu,cpu"
};

struct ClusterState {
  std::string name;
  std::string coordinator_address;  // "10.78.0.1:7070", reachable from this machine
  std::string token_file;
  bool insecure = false;       // its daemons talk without TLS
  std::string directory;       // logs and the daemons' state folders
  bool owns_directory = true;  // `cluster down` removes `directory`
  bool ready = false;          // `cluster up` has finished
  std::string shaper;          // how links are shaped: "htb" or "tbf" (shaping.h)
  DelayBy delay_by = DelayBy::kRelay;
  std::string coordinator_program;
  std::string worker_program;
  std::string relay_program;
  std::string log_level;
  std::string python_codecs;  // value of longhaul-worker's --python-codec; "": no flag
  uint32_t subnet = 0;        // the third byte of the cluster's addresses (K in network.h)
  ProcessIdentity coordinator;
  ProcessIdentity relay;  // pid 0 while no link needs the relay
  std::vector<ClusterWorkerState> workers;
  // In the order in which they were first requested. A path is never removed.
  std::vector<PathParameters> paths;
};

// $XDG_RUNTIME_DIR/longhaul, /run/longhaul or /tmp/longhaul-<uid>.
std::string ClusterRuntimeRoot();
// <runtime root>/<name>.
std::string ClusterStateFolder(std::string_view name);

// Makes a folder of mode 0700 that belongs to this user, or sets the mode of an existing folder.
// The parent folder must exist. kFailedPrecondition: `path` is no folder of this user.
Status MakePrivateFolder(const std::string& path);

// Reads the state of a cluster. Empty `name`: of the cluster "local" if it is there, else of the
// only cluster. kNotFound: there is no such cluster, or `name` is empty and there are several,
// which the message lists. kFailedPrecondition: this user may not read the file. kInvalidArgument:
// the file is broken, or of another version. Messages say what to do.
StatusOr<ClusterState> ReadClusterState(std::string_view name = {});
// Replaces the file atomically, and makes its folders.
Status WriteClusterState(const ClusterState& state);
// Returns the names of all clusters with a state file, sorted.
std::vector<std::string> ListClusters();

// Returns the cluster of this user whose coordinator has this address, "10.78.0.1:7070"; nullopt:
// there is none. A cluster whose coordinator and workers are all gone does not count: a killed
// cluster leaves its file behind, and a later cluster may have the same address.
std::optional<ClusterState> ClusterAt(std::string_view coordinator_address);

// For tests: convert to and from the file's text. kInvalidArgument: the text is broken, or of
// another version.
std::string ClusterStateToJson(const ClusterState& state);
StatusOr<ClusterState> ClusterStateFromJson(std::string_view text);

}  // namespace longhaul
