#include "deploy/cluster/state_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "deploy/cluster/json_fields.h"
#include "deploy/cluster/process.h"

namespace longhaul {

// Unknown words: the relay.
NLOHMANN_JSON_SERIALIZE_ENUM(DelayBy, {{DelayBy::kRelay, ToString(DelayBy::kRelay)},
                                       {DelayBy::kNetem, ToString(DelayBy::kNetem)}})

void Fields(auto&& field, MaybeConst<ProcessIdentity> auto& process) {
  field("pid", process.pid);
  field("start_ticks", process.start_ticks);
}

void Fields(auto&& field, MaybeConst<LinkParameters> auto& link) {
  field("up_bits_per_second", link.up_bits_per_second);
  field("down_bits_per_second", link.down_bits_per_second);
  field("quality", link.quality);
}

void Fields(auto&& field, MaybeConst<CountedBefore> auto& counted) {
  field("bytes", counted.bytes);
  field("packets", counted.packets);
  field("dropped_packets", counted.dropped_packets);
  field("data_bytes", counted.data_bytes);
  field("acknowledgement_bytes", counted.acknowledgement_bytes);
}

void Fields(auto&& field, MaybeConst<PathParameters> auto& path) {
  field("from", path.from);
  field("to", path.to);
  field("bits_per_second", path.bits_per_second);
  field("quality", path.quality);
}

void Fields(auto&& field, MaybeConst<ClusterWorkerState> auto& worker) {
  field("name", worker.name);
  field("network", worker.network);
  field("data_address", worker.data_address);
  field("control_address", worker.control_address);
  field("link", worker.link);
  field("link_up", worker.link_up);
  field("process", worker.process);
  field("uplink_before", worker.uplink_before);
  field("device", worker.device, std::string("cpu"));  // of an older version
}

void Fields(auto&& field, MaybeConst<ClusterState> auto& state) {
  field("name", state.name);
  field("coordinator_address", state.coordinator_address);
  field("token_file", state.token_file);
  field("insecure", state.insecure, true);  // of before there was TLS
  field("directory", state.directory);
  field("owns_directory", state.owns_directory);
  field("ready", state.ready);
  field("shaper", state.shaper);
  field("delay_by", state.delay_by);
  field("coordinator_program", state.coordinator_program);
  field("worker_program", state.worker_program);
  field("relay_program", state.relay_program);
  field("log_level", state.log_level);
  field("python_codecs", state.python_codecs, std::string());  // of an older version
  field("subnet", state.subnet);
  field("coordinator", state.coordinator);
  field("relay", state.relay);
  field("workers", state.workers);
  field("paths", state.paths);
}

namespace {

using nlohmann::json;

constexpr int kVersion = 2;

std::string StatePath(std::string_view name) {
  return fmt::format("{}/cluster.json", ClusterStateFolder(name));
}

bool IsUp(const ClusterState& state) {
  return IsAlive(state.coordinator) ||
         std::ranges::any_of(state.workers, [](const ClusterWorkerState& worker) {
           return IsAlive(worker.process);
         });
}

}  // namespace

std::string ClusterRuntimeRoot() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return fmt::format("{}/longhaul", runtime);
  if (geteuid() == 0) return "/run/longhaul";
  return fmt::format("/tmp/longhaul-{}", geteuid());
}

std::string ClusterStateFolder(std::string_view name) {
  return fmt::format("{}/{}", ClusterRuntimeRoot(), name);
}

Status MakePrivateFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FromErrno(fmt::format("cannot make the folder {}", path), errno);
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return FromErrno(path, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return FailedPrecondition(
        "expected {} to be a folder of this user; it is not. Remove it, or set XDG_RUNTIME_DIR",
        path);
  }
  if (chmod(path.c_str(), 0700) != 0) return FromErrno(path, errno);
  return absl::OkStatus();
}

std::string ClusterStateToJson(const ClusterState& state) {
  json document = state;
  document["version"] = kVersion;
  return document.dump(2) + "\n";
}

StatusOr<ClusterState> ClusterStateFromJson(std::string_view text) {
  try {
    const json document = json::parse(text);
    if (const int version = document.at("version").get<int>(); version != kVersion) {
      return InvalidArgument(
          "expected version {} of the cluster's state, found {}; it was written by another version "
          "of longhaul: use that one's `longhaul cluster down`",
          kVersion, version);
    }
    ClusterState state;
    document.get_to(state);
    return state;
  } catch (const json::exception& error) {
    return InvalidArgument("not a cluster's state: {}", std::string_view(error.what()));
  }
}

std::vector<std::string> ListClusters() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(ClusterRuntimeRoot(), ignored)) {
    if (std::filesystem::exists(entry.path() / "cluster.json", ignored)) {
      names.push_back(entry.path().filename());
    }
  }
  std::ranges::sort(names);
  return names;
}

StatusOr<ClusterState> ReadClusterState(std::string_view name) {
  std::string chosen(name);
  if (chosen.empty()) {
    const std::vector<std::string> names = ListClusters();
    const bool has_default = std::ranges::find(names, kDefaultClusterName) != names.end();
    if (has_default || names.empty()) {
      chosen = kDefaultClusterName;
    } else if (names.size() == 1) {
      chosen = names.front();
    } else {
      return NotFound("several local clusters are up ({}); say which one with --name",
                      fmt::join(names, ", "));
    }
  }
  const std::string path = StatePath(chosen);
  if (access(path.c_str(), R_OK) != 0) {
    if (errno == EACCES) {
      return FailedPrecondition("{} belongs to another user; run the command as that one (sudo)",
                                path);
    }
    return NotFound(
        "no local cluster '{}' is up (there is no {}); start one with `longhaul cluster up{}`",
        chosen, path, chosen == kDefaultClusterName ? "" : " --name " + chosen);
  }
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 20));
  StatusOr<ClusterState> state = ClusterStateFromJson(text);
  if (!state.ok()) return Annotate(state.status(), path);
  return state;
}

std::optional<ClusterState> ClusterAt(std::string_view coordinator_address) {
  for (const std::string& name : ListClusters()) {
    StatusOr<ClusterState> state = ReadClusterState(name);
    if (state.ok() && state->coordinator_address == coordinator_address && IsUp(*state)) {
      return *std::move(state);
    }
  }
  return std::nullopt;
}

Status WriteClusterState(const ClusterState& state) {
  LH_RETURN_IF_ERROR(MakePrivateFolder(ClusterRuntimeRoot()));
  LH_RETURN_IF_ERROR(MakePrivateFolder(ClusterStateFolder(state.name)));
  return WriteFileAtomic(StatePath(state.name), ClusterStateToJson(state), 0600);
}

}  // namespace longhaul
