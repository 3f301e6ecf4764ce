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

namespace longhaul {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;

std::string StatePath(std::string_view name) {
  return fmt::format("{}/cluster.json", ClusterStateFolder(name));
}

json ToJson(const ProcessIdentity& process) {
  return {{"pid", process.pid}, {"start_ticks", process.start_ticks}};
}

ProcessIdentity ProcessFromJson(const json& object) {
  return {object.at("pid").get<pid_t>(), object.at("start_ticks").get<uint64_t>()};
}

json ToJson(const LinkQuality& quality) {
  return {{"delay_ns", absl::ToInt64Nanoseconds(quality.delay)},
          {"jitter_ns", absl::ToInt64Nanoseconds(quality.jitter)},
          {"loss", quality.loss}};
}

LinkQuality QualityFromJson(const json& object) {
  return {absl::Nanoseconds(object.at("delay_ns").get<int64_t>()),
          absl::Nanoseconds(object.at("jitter_ns").get<int64_t>()),
          object.at("loss").get<double>()};
}

json ToJson(const LinkParameters& link) {
  return {{"up_bits_per_second", link.up_bits_per_second},
          {"down_bits_per_second", link.down_bits_per_second},
          {"quality", ToJson(link.quality)}};
}

LinkParameters LinkFromJson(const json& object) {
  return {object.at("up_bits_per_second").get<uint64_t>(),
          object.at("down_bits_per_second").get<uint64_t>(), QualityFromJson(object.at("quality"))};
}

json ToJson(const CountedBefore& counted) {
  return {{"bytes", counted.bytes},
          {"packets", counted.packets},
          {"dropped_packets", counted.dropped_packets},
          {"data_bytes", counted.data_bytes},
          {"acknowledgement_bytes", counted.acknowledgement_bytes}};
}

CountedBefore CountedFromJson(const json& object) {
  return {object.at("bytes").get<uint64_t>(), object.at("packets").get<uint64_t>(),
          object.at("dropped_packets").get<uint64_t>(), object.at("data_bytes").get<uint64_t>(),
          object.at("acknowledgement_bytes").get<uint64_t>()};
}

json ToJson(const PathParameters& path) {
  return {{"from", path.from},
          {"to", path.to},
          {"bits_per_second", path.bits_per_second},
          {"quality", path.quality ? ToJson(*path.quality) : json(nullptr)}};
}

PathParameters PathFromJson(const json& object) {
  PathParameters path;
  object.at("from").get_to(path.from);
  object.at("to").get_to(path.to);
  object.at("bits_per_second").get_to(path.bits_per_second);
  if (!object.at("quality").is_null()) path.quality = QualityFromJson(object.at("quality"));
  return path;
}

}  // namespace

std::string_view ToString(DelayBy by) {
  return by == DelayBy::kNetem ? "netem" : "relay";
}

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
  json workers = json::array();
  for (const ClusterWorkerState& worker : state.workers) {
    workers.push_back({{"name", worker.name},
                       {"network", worker.network},
                       {"data_address", worker.data_address},
                       {"control_address", worker.control_address},
                       {"link", ToJson(worker.link)},
                       {"link_up", worker.link_up},
                       {"uplink_before", ToJson(worker.uplink_before)},
                       {"device", worker.device},
                       {"process", ToJson(worker.process)}});
  }
  json paths = json::array();
  for (const PathParameters& path : state.paths) paths.push_back(ToJson(path));
  const json document = {{"version", kVersion},
                         {"name", state.name},
                         {"coordinator_address", state.coordinator_address},
                         {"token_file", state.token_file},
                         {"insecure", state.insecure},
                         {"directory", state.directory},
                         {"owns_directory", state.owns_directory},
                         {"ready", state.ready},
                         {"shaper", state.shaper},
                         {"delay_by", ToString(state.delay_by)},
                         {"coordinator_program", state.coordinator_program},
                         {"worker_program", state.worker_program},
                         {"relay_program", state.relay_program},
                         {"log_level", state.log_level},
                         {"subnet", state.subnet},
                         {"coordinator", ToJson(state.coordinator)},
                         {"relay", ToJson(state.relay)},
                         {"workers", workers},
                         {"paths", paths}};
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
    document.at("name").get_to(state.name);
    document.at("coordinator_address").get_to(state.coordinator_address);
    document.at("token_file").get_to(state.token_file);
    state.insecure = document.value("insecure", true);  // of before there was TLS
    document.at("directory").get_to(state.directory);
    document.at("owns_directory").get_to(state.owns_directory);
    document.at("ready").get_to(state.ready);
    document.at("shaper").get_to(state.shaper);
    document.at("coordinator_program").get_to(state.coordinator_program);
    document.at("worker_program").get_to(state.worker_program);
    document.at("relay_program").get_to(state.relay_program);
    document.at("log_level").get_to(state.log_level);
    document.at("subnet").get_to(state.subnet);
    state.coordinator = ProcessFromJson(document.at("coordinator"));
    state.relay = ProcessFromJson(document.at("relay"));
    const bool netem = document.at("delay_by").get<std::string>() == ToString(DelayBy::kNetem);
    state.delay_by = netem ? DelayBy::kNetem : DelayBy::kRelay;
    for (const json& path : document.at("paths")) state.paths.push_back(PathFromJson(path));
    for (const json& entry : document.at("workers")) {
      ClusterWorkerState worker;
      entry.at("name").get_to(worker.name);
      entry.at("network").get_to(worker.network);
      entry.at("data_address").get_to(worker.data_address);
      entry.at("control_address").get_to(worker.control_address);
      worker.link = LinkFromJson(entry.at("link"));
      entry.at("link_up").get_to(worker.link_up);
      worker.process = ProcessFromJson(entry.at("process"));
      worker.uplink_before = CountedFromJson(entry.at("uplink_before"));
      worker.device = entry.value("device", worker.device);  // of an older version: the CPU
      state.workers.push_back(std::move(worker));
    }
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
    if (state.ok() && state->coordinator_address == coordinator_address) return *std::move(state);
  }
  return std::nullopt;
}

Status WriteClusterState(const ClusterState& state) {
  LH_RETURN_IF_ERROR(MakePrivateFolder(ClusterRuntimeRoot()));
  LH_RETURN_IF_ERROR(MakePrivateFolder(ClusterStateFolder(state.name)));
  return WriteFileAtomic(StatePath(state.name), ClusterStateToJson(state), 0600);
}

}  // namespace longhaul
