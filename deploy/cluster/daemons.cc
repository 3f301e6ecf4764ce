#include "deploy/cluster/daemons.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/units.h"
#include "deploy/cluster/coordinator_probe.h"
#include "deploy/cluster/network.h"

namespace longhaul {
namespace {

constexpr int kLogLines = 20;

// The daemons whose death ends the waiting.
Status CheckAlive(const ClusterState& state, std::string_view only) {
  if (!IsAlive(state.coordinator)) return DiedError(state, kCoordinatorDaemon);
  for (const ClusterWorkerState& worker : state.workers) {
    if (!only.empty() && worker.name != only) continue;
    if (worker.process.pid != 0 && !IsAlive(worker.process)) return DiedError(state, worker.name);
  }
  return absl::OkStatus();
}

}  // namespace

Status DiedError(const ClusterState& state, std::string_view daemon) {
  const std::string path = LogPath(state, daemon);
  const std::string tail = LogTail(path, kLogLines);
  return Internal("{} has ended. {}", daemon,
                  tail.empty() ? fmt::format("It wrote nothing to {}.", path)
                               : fmt::format("The end of its log ({}):\n{}", path, tail));
}

StatusOr<std::string> FindProgram(const std::string& program, std::string_view name) {
  std::error_code error;
  std::string path = program;
  if (path.empty()) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    path = self.parent_path() / name;
  }
  path = std::filesystem::absolute(path, error);
  if (access(path.c_str(), X_OK) == 0) return path;
  return FailedPrecondition(
      "expected the program {} at {}; it is not there (or cannot be run). Build it "
      "(ninja {}), or say where it is with a --...-program option",
      name, path, name);
}

Command InNetwork(const std::string& network, Command command) {
  Command whole = {FindTool("ip"), "netns", "exec", network};
  whole.insert(whole.end(), std::make_move_iterator(command.begin()),
               std::make_move_iterator(command.end()));
  return whole;
}

Command CoordinatorCommand(const ClusterState& state) {
  Command command = InNetwork(BridgeNetwork(state.name),
                              {state.coordinator_program, "--listen", state.coordinator_address,
                               "--state-dir", fmt::format("{}/coordinator", state.directory),
                               "--token-file", state.token_file, "--log-level", state.log_level});
  if (state.insecure) command.emplace_back("--insecure");
  return command;
}

// Where several workers share a GPU, each plans with its part of the memory.
double MemoryShare(const ClusterState& state, const ClusterWorkerState& worker) {
  const auto devices_of = [](const ClusterWorkerState& one) {
    return std::vector<std::string>(absl::StrSplit(one.device, ','));
  };
  int64_t most = 1;
  for (const std::string& device : devices_of(worker)) {
    if (device == "cpu") continue;
    most = std::max<int64_t>(
        most, std::ranges::count_if(state.workers, [&](const ClusterWorkerState& other) {
          const std::vector<std::string> others = devices_of(other);
          return std::ranges::find(others, device) != others.end();
        }));
  }
  return 1.0 / static_cast<double>(most);
}

Command WorkerCommand(const ClusterState& state, const ClusterWorkerState& worker) {
  Command command = InNetwork(
      worker.network,
      {state.worker_program, "--coordinator", state.coordinator_address, "--token-file",
       state.token_file, "--state-dir", fmt::format("{}/{}", state.directory, worker.name),
       "--name", worker.name, "--data-address", fmt::format("{}:0", worker.data_address),
       "--device", worker.device, "--log-level", state.log_level,
       // User and workers are one account here.
       "--data-root", "/"});
  if (const double share = MemoryShare(state, worker); share < 1) {
    command.insert(command.end(), {"--memory-share", fmt::format("{:.3f}", share)});
  }
  if (state.insecure) command.emplace_back("--insecure");
  if (!state.python_codecs.empty()) {
    command.insert(command.end(), {"--python-codec", state.python_codecs});
  }
  return command;
}

std::string LogPath(const ClusterState& state, std::string_view daemon) {
  return fmt::format("{}/{}.log", state.directory, daemon);
}

Status StartCoordinator(ClusterState* state) {
  LH_ASSIGN_OR_RETURN(state->coordinator, StartDaemon(CoordinatorCommand(*state), state->name,
                                                      LogPath(*state, kCoordinatorDaemon)));
  return absl::OkStatus();
}

Status StartWorker(const ClusterState& state, ClusterWorkerState* worker) {
  LH_ASSIGN_OR_RETURN(worker->process, StartDaemon(WorkerCommand(state, *worker), state.name,
                                                   LogPath(state, worker->name)));
  return absl::OkStatus();
}

Status WaitUntilConnected(const ClusterState& state, std::string_view only, Deadline deadline,
                          ProgressLine* progress, InterruptGuard* interrupts) {
  CoordinatorProbe probe(state);
  std::vector<const ClusterWorkerState*> waited_for;
  for (const ClusterWorkerState& worker : state.workers) {
    if (only.empty() || worker.name == only) waited_for.push_back(&worker);
  }
  if (only == kCoordinatorDaemon) waited_for.clear();
  while (true) {
    LH_RETURN_IF_ERROR(interrupts->Check());
    LH_RETURN_IF_ERROR(CheckAlive(state, only));
    // Also where less time is left: a last question cut short would blame the coordinator.
    const StatusOr<ConnectedWorkers> connected = probe.Connected(absl::Milliseconds(300));
    std::string what = "waiting for the coordinator to answer";
    if (connected.ok()) {
      std::vector<std::string> missing;
      for (const ClusterWorkerState* worker : waited_for) {
        if (!connected->contains({worker->name, worker->process.pid})) {
          missing.push_back(worker->name);
        }
      }
      if (missing.empty()) return absl::OkStatus();
      what = fmt::format("{} of {} connected; waiting for {}", waited_for.size() - missing.size(),
                         waited_for.size(), fmt::join(missing, ", "));
    } else if (!absl::IsUnavailable(connected.status()) &&
               !absl::IsDeadlineExceeded(connected.status())) {
      return connected.status();
    }
    progress->Show(what);
    if (deadline.Expired()) {
      return DeadlineExceeded("out of time, {}. Logs are in {}; --timeout sets how long to wait",
                              what, state.directory);
    }
    // The coordinator has no call that waits for workers, so ask again soon.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace longhaul
