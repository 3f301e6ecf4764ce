#include "coordinator/cli/cluster/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file.h"
#include "base/token.h"
#include "coordinator/cli/cluster/daemons.h"
#include "coordinator/cli/cluster/lock.h"
#include "coordinator/cli/cluster/network.h"
#include "coordinator/cli/cluster/process.h"
#include "coordinator/cli/cluster/requirements.h"
#include "coordinator/cli/cluster/shaping.h"
#include "coordinator/cli/cluster/terminal.h"

namespace longhaul {
namespace {

constexpr absl::Duration kLockPatience = absl::Seconds(60);
// For daemons to write their state and end by themselves.
constexpr absl::Duration kStopPatience = absl::Seconds(5);

std::string DefaultDirectoryRoot() {
  return fmt::format("/var/tmp/longhaul-{}", geteuid());
}
std::string DefaultDirectory(std::string_view name) {
  return fmt::format("{}/{}", DefaultDirectoryRoot(), name);
}

std::string NameOption(const std::string& name) {
  return name == kDefaultClusterName ? "" : " --name " + name;
}

// Everything of a cluster that is not a network or a process.
void RemoveFiles(const std::string& name, const std::string& kept_directory) {
  std::error_code ignored;
  std::filesystem::remove_all(ClusterStateFolder(name), ignored);
  if (kept_directory.empty()) {
    std::filesystem::remove_all(DefaultDirectory(name), ignored);
    rmdir(DefaultDirectoryRoot().c_str());  // Stays while another cluster uses it.
  }
}

// Processes, networks, files: all that is found. Goes on after errors; the first one.
Status TearDown(const std::string& name) {
  std::vector<ProcessIdentity> processes = FindDaemons(name);
  std::string kept_directory;
  if (const StatusOr<ClusterState> state = ReadClusterState(name); state.ok()) {
    if (!state->owns_directory) kept_directory = state->directory;
    processes.push_back(state->coordinator);
    for (const ClusterWorkerState& worker : state->workers) processes.push_back(worker.process);
  }
  Status first = StopProcesses(processes, kStopPatience);
  // A daemon may have been started by a child that was not marked yet when we looked.
  first.Update(StopProcesses(FindDaemons(name), absl::ZeroDuration()));
  first.Update(DestroyNetwork(name));
  if (first.ok()) RemoveFiles(name, kept_directory);
  return first;
}

bool AnythingThere(const std::string& name) {
  return !FindNetwork(name).empty() || !FindDaemons(name).empty() ||
         access(ClusterStateFolder(name).c_str(), F_OK) == 0;
}

Status CheckNotThere(const std::string& name) {
  const StatusOr<ClusterState> state = ReadClusterState(name);
  if (state.ok() && state->ready) {
    return absl::AlreadyExistsError(fmt::format(
        "cluster '{}' is up already, with {} workers (`longhaul cluster status{}`). Take it down "
        "first (`longhaul cluster down{}`), or choose another --name for a second one",
        name, state->workers.size(), NameOption(name), NameOption(name)));
  }
  if (!AnythingThere(name)) return absl::OkStatus();
  return absl::AlreadyExistsError(fmt::format(
      "there are remains of a cluster '{}' that did not end properly; clear them with `longhaul "
      "cluster down{}`, then try again",
      name, NameOption(name)));
}

StatusOr<ClusterState> InitialState(const ClusterUpOptions& options) {
  ClusterState state;
  state.name = options.name;
  state.log_level = options.log_level;
  LH_ASSIGN_OR_RETURN(state.coordinator_program,
                      FindProgram(options.coordinator_program, "longhaul-coordinator"));
  LH_ASSIGN_OR_RETURN(state.worker_program, FindProgram(options.worker_program, "longhaul-worker"));
  state.token_file = fmt::format("{}/token", ClusterStateFolder(options.name));
  state.owns_directory = options.directory.empty();
  if (state.owns_directory) {
    state.directory = DefaultDirectory(options.name);
    LH_RETURN_IF_ERROR(MakePrivateFolder(DefaultDirectoryRoot()));
    std::error_code ignored;
    std::filesystem::remove_all(state.directory, ignored);  // of a cluster before a reboot
    LH_RETURN_IF_ERROR(MakePrivateFolder(state.directory));
  } else {
    std::error_code ignored;
    state.directory = std::filesystem::absolute(options.directory, ignored).lexically_normal();
    LH_RETURN_IF_ERROR(MakeDirectories(state.directory));
  }
  for (uint32_t number = 1; number <= options.workers; ++number) {
    ClusterWorkerState worker;
    worker.name = fmt::format("worker{}", number);
    worker.network = WorkerNetwork(options.name, number);
    worker.rate_bits_per_second = options.rate_bits_per_second;
    state.workers.push_back(std::move(worker));
  }
  return state;
}

Status ShapeBothWays(const ClusterState& state, uint32_t number, uint64_t from, uint64_t to) {
  LH_ASSIGN_OR_RETURN(const Shaper shaper, ParseShaper(state.shaper));
  LH_RETURN_IF_ERROR(Shape(Uplink(state.name, number), shaper, from, to));
  return Shape(Downlink(state.name, number), shaper, from, to);
}

Status BuildNetwork(ClusterState* state, ProgressLine* progress, InterruptGuard* interrupts) {
  progress->Show("making the network");
  LH_ASSIGN_OR_RETURN(state->subnet, CreateBridges(state->name));
  state->coordinator_address = CoordinatorAddress(state->subnet);
  const StatusOr<Shaper> shaper = ProbeShaper(BridgeNetwork(state->name));
  const uint64_t rate = state->workers.front().rate_bits_per_second;
  if (!shaper.ok() && rate != 0) return shaper.status();
  state->shaper = ToString(shaper.value_or(Shaper::kTbf));
  const size_t workers = state->workers.size();
  for (uint32_t number = 1; number <= workers; ++number) {
    LH_RETURN_IF_ERROR(interrupts->Check());
    progress->Show(fmt::format("making the network: link {} of {}", number, workers));
    ClusterWorkerState& worker = state->workers[number - 1];
    worker.data_address = DataAddress(state->subnet, number);
    worker.control_address = ControlAddress(state->subnet, number);
    LH_RETURN_IF_ERROR(CreateWorkerNetwork(state->name, state->subnet, number));
    LH_RETURN_IF_ERROR(ShapeBothWays(*state, number, 0, rate));
  }
  return absl::OkStatus();
}

Status StartEverything(ClusterState* state, Deadline deadline, ProgressLine* progress,
                       InterruptGuard* interrupts) {
  LH_RETURN_IF_ERROR(WriteClusterState(*state));  // From here on, `down` knows the directory.
  LH_RETURN_IF_ERROR(GenerateTokenFile(state->token_file));
  LH_RETURN_IF_ERROR(BuildNetwork(state, progress, interrupts));
  LH_RETURN_IF_ERROR(WriteClusterState(*state));
  progress->Show("starting the coordinator");
  LH_RETURN_IF_ERROR(StartCoordinator(state));
  LH_RETURN_IF_ERROR(WriteClusterState(*state));
  LH_RETURN_IF_ERROR(
      WaitUntilConnected(*state, kCoordinatorDaemon, deadline, progress, interrupts));
  for (ClusterWorkerState& worker : state->workers) {
    LH_RETURN_IF_ERROR(interrupts->Check());
    progress->Show(fmt::format("starting {}", worker.name));
    LH_RETURN_IF_ERROR(StartWorker(*state, &worker));
    LH_RETURN_IF_ERROR(WriteClusterState(*state));
  }
  LH_RETURN_IF_ERROR(WaitUntilConnected(*state, {}, deadline, progress, interrupts));
  state->ready = true;
  return WriteClusterState(*state);
}

// "worker3" -> 3.
StatusOr<uint32_t> WorkerNumber(const ClusterState& state, const std::string& worker) {
  std::vector<std::string> names;
  for (uint32_t index = 0; index < state.workers.size(); ++index) {
    if (state.workers[index].name == worker) return index + 1;
    names.push_back(state.workers[index].name);
  }
  return absl::InvalidArgumentError(fmt::format("cluster '{}' has no '{}'; it has {}", state.name,
                                                worker, fmt::join(names, ", ")));
}

StatusOr<ProcessIdentity*> FindDaemon(ClusterState* state, const std::string& daemon) {
  if (daemon == kCoordinatorDaemon) return &state->coordinator;
  StatusOr<uint32_t> number = WorkerNumber(*state, daemon);
  if (!number.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}, and the coordinator", Message(number.status())));
  }
  return &state->workers[*number - 1].process;
}

Status ChangeOneLink(ClusterState* state, uint32_t number, const LinkChange& change) {
  ClusterWorkerState& worker = state->workers[number - 1];
  if (change.set_rate) {
    LH_RETURN_IF_ERROR(
        ShapeBothWays(*state, number, worker.rate_bits_per_second, change.rate_bits_per_second));
    worker.rate_bits_per_second = change.rate_bits_per_second;
  }
  if (change.set_up) {
    LH_RETURN_IF_ERROR(SetLinkUp(state->name, number, change.up));
    worker.link_up = change.up;
  }
  return WriteClusterState(*state);
}

}  // namespace

StatusOr<ClusterState> ClusterUp(const ClusterUpOptions& options) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckClusterName(options.name));
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(options.name, absl::ZeroDuration()));
  LH_RETURN_IF_ERROR(CheckNotThere(options.name));
  LH_ASSIGN_OR_RETURN(ClusterState state, InitialState(options));
  ProgressLine progress;
  const Status started =
      StartEverything(&state, Deadline::After(options.patience), &progress, &interrupts);
  if (started.ok()) return state;
  progress.Show("cleaning up");
  const Status cleaned = TearDown(options.name);
  progress.Clear();
  if (cleaned.ok()) return started;
  return absl::Status(
      started.code(),
      fmt::format("{}\nCleaning up did not work either: {}. Try `longhaul cluster down{}`",
                  Message(started), Message(cleaned), NameOption(options.name)));
}

StatusOr<bool> ClusterDown(const std::string& name) {
  InterruptGuard interrupts;  // A half-done `down` helps nobody; it takes seconds.
  LH_RETURN_IF_ERROR(CheckClusterName(name));
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(name, kLockPatience));
  if (!AnythingThere(name)) {
    RemoveFiles(name, {});
    return false;
  }
  ProgressLine progress;
  progress.Show(fmt::format("stopping cluster '{}'", name));
  LH_RETURN_IF_ERROR(TearDown(name));
  return true;
}

Status ChangeLink(const std::string& name, const LinkChange& change) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(name, kLockPatience));
  LH_ASSIGN_OR_RETURN(ClusterState state, ReadClusterState(name));
  if (change.worker != "all") {
    LH_ASSIGN_OR_RETURN(const uint32_t number, WorkerNumber(state, change.worker));
    return ChangeOneLink(&state, number, change);
  }
  for (uint32_t number = 1; number <= state.workers.size(); ++number) {
    LH_RETURN_IF_ERROR(ChangeOneLink(&state, number, change));
  }
  return absl::OkStatus();
}

Status KillDaemon(const std::string& name, const std::string& daemon) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(name, kLockPatience));
  LH_ASSIGN_OR_RETURN(ClusterState state, ReadClusterState(name));
  LH_ASSIGN_OR_RETURN(ProcessIdentity * process, FindDaemon(&state, daemon));
  if (!IsAlive(*process)) {
    return absl::FailedPreconditionError(
        fmt::format("{} is not running; `longhaul cluster start {}{}` starts it again", daemon,
                    daemon, NameOption(name)));
  }
  return KillProcess(*process);
}

Status RestartDaemon(const std::string& name, const std::string& daemon, absl::Duration patience) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(name, kLockPatience));
  LH_ASSIGN_OR_RETURN(ClusterState state, ReadClusterState(name));
  LH_ASSIGN_OR_RETURN(ProcessIdentity * process, FindDaemon(&state, daemon));
  if (IsAlive(*process)) {
    return absl::FailedPreconditionError(
        fmt::format("{} is running already (process {})", daemon, process->pid));
  }
  if (daemon == kCoordinatorDaemon) {
    LH_RETURN_IF_ERROR(StartCoordinator(&state));
  } else {
    LH_ASSIGN_OR_RETURN(const uint32_t number, WorkerNumber(state, daemon));
    LH_RETURN_IF_ERROR(StartWorker(state, &state.workers[number - 1]));
  }
  LH_RETURN_IF_ERROR(WriteClusterState(state));
  ProgressLine progress;
  return WaitUntilConnected(state, daemon, Deadline::After(patience), &progress, &interrupts);
}

}  // namespace longhaul
