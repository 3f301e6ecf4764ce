#include "deploy/cluster/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/device_name.h"
#include "base/file.h"
#include "base/token.h"
#include "deploy/cluster/daemons.h"
#include "deploy/cluster/links.h"
#include "deploy/cluster/lock.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/requirements.h"
#include "deploy/cluster/shaping.h"
#include "deploy/cluster/terminal.h"

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

StatusOr<std::string> RunningProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError("cannot read /proc/self/exe: " + error.message());
  return self.string();
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
    processes.push_back(state->relay);
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
    return AlreadyExists(
        "cluster '{}' is up already, with {} workers (`longhaul cluster status{}`). Take it down "
        "first (`longhaul cluster down{}`), or choose another --name for a second one",
        name, state->workers.size(), NameOption(name), NameOption(name));
  }
  if (!AnythingThere(name)) return absl::OkStatus();
  return AlreadyExists(
      "there are remains of a cluster '{}' that did not end properly; clear them with `longhaul "
      "cluster down{}`, then try again",
      name, NameOption(name));
}

// Makes `directory`, a folder in DefaultDirectoryRoot(). Another cluster that goes down at the same
// time removes the root when it is empty; so this tries again.
Status MakeDefaultDirectory(const std::string& directory) {
  Status made;
  for (int attempt = 0; attempt < 100; ++attempt) {
    made = MakePrivateFolder(DefaultDirectoryRoot());
    if (made.ok()) {
      std::error_code ignored;
      std::filesystem::remove_all(directory, ignored);  // of a cluster before a reboot
      made = MakePrivateFolder(directory);
    }
    if (!absl::IsNotFound(made)) break;
  }
  return made;
}

StatusOr<ClusterState> InitialState(const ClusterUpOptions& options) {
  ClusterState state;
  state.name = options.name;
  state.log_level = options.log_level;
  state.python_codecs = options.python_codecs;
  state.insecure = options.insecure;
  LH_ASSIGN_OR_RETURN(state.coordinator_program,
                      FindProgram(options.coordinator_program, "longhaul-coordinator"));
  LH_ASSIGN_OR_RETURN(state.worker_program, FindProgram(options.worker_program, "longhaul-worker"));
  LH_ASSIGN_OR_RETURN(state.relay_program, options.relay_program.empty()
                                               ? RunningProgram()
                                               : FindProgram(options.relay_program, "longhaul"));
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                      ShareDevices(options.device, options.workers, options.devices_per_worker));
  state.token_file = fmt::format("{}/token", ClusterStateFolder(options.name));
  state.owns_directory = options.directory.empty();
  if (state.owns_directory) {
    state.directory = DefaultDirectory(options.name);
    LH_RETURN_IF_ERROR(MakeDefaultDirectory(state.directory));
  } else {
    std::error_code ignored;
    state.directory = std::filesystem::absolute(options.directory, ignored).lexically_normal();
    LH_RETURN_IF_ERROR(MakeDirectories(state.directory));
  }
  for (uint32_t number = 1; number <= options.workers; ++number) {
    ClusterWorkerState worker;
    worker.name = fmt::format("worker{}", number);
    worker.network = WorkerNetwork(options.name, number);
    worker.link = options.link;
    worker.device = devices[number - 1];
    state.workers.push_back(std::move(worker));
  }
  return state;
}

// What the links of a cluster are before anything was done about them.
ClusterState Unshaped(ClusterState state) {
  for (ClusterWorkerState& worker : state.workers) worker.link = {};
  state.paths.clear();
  return state;
}

Status ChooseDelayBy(const std::optional<DelayBy>& wanted, ClusterState* state) {
  const bool htb = state->shaper == ToString(Shaper::kHtb);
  const Status netem = ProbeNetem(BridgeNetwork(state->name));
  state->delay_by = wanted.value_or(netem.ok() && htb ? DelayBy::kNetem : DelayBy::kRelay);
  if (wanted == DelayBy::kNetem && !(netem.ok() && htb)) {
    return FailedPrecondition(
        "this kernel has no {} qdisc. Load the module (modprobe {}), or leave --delay-by out: the "
        "relay, a process of the cluster, does the same. tc says: {}",
        htb ? "netem" : "htb", htb ? "sch_netem" : "sch_htb", Message(netem));
  }
  return absl::OkStatus();
}

Status BuildNetwork(const std::optional<DelayBy>& delay_by, ClusterState* state,
                    ProgressLine* progress, InterruptGuard* interrupts) {
  progress->Show("making the network");
  LH_ASSIGN_OR_RETURN(state->subnet, CreateBridges(state->name));
  state->coordinator_address = CoordinatorAddress(state->subnet);
  const StatusOr<Shaper> shaper = ProbeShaper(BridgeNetwork(state->name));
  const LinkParameters& link = state->workers.front().link;
  if (!shaper.ok() && (link.up_bits_per_second != 0 || link.down_bits_per_second != 0)) {
    return shaper.status();
  }
  state->shaper = ToString(shaper.value_or(Shaper::kTbf));
  LH_RETURN_IF_ERROR(ChooseDelayBy(delay_by, state));
  const size_t workers = state->workers.size();
  for (uint32_t number = 1; number <= workers; ++number) {
    LH_RETURN_IF_ERROR(interrupts->Check());
    progress->Show(fmt::format("making the network: link {} of {}", number, workers));
    ClusterWorkerState& worker = state->workers[number - 1];
    worker.data_address = DataAddress(state->subnet, number);
    worker.control_address = ControlAddress(state->subnet, number);
    LH_RETURN_IF_ERROR(CreateWorkerNetwork(state->name, state->subnet, number));
  }
  progress->Show("shaping the links");
  return ApplyLinks(Unshaped(*state), state);
}

// "worker3" -> 3.
StatusOr<uint32_t> WorkerNumber(const ClusterState& state, const std::string& worker) {
  std::vector<std::string> names;
  for (uint32_t index = 0; index < state.workers.size(); ++index) {
    if (state.workers[index].name == worker) return index + 1;
    names.push_back(state.workers[index].name);
  }
  return InvalidArgument("cluster '{}' has no '{}'; it has {}", state.name, worker,
                         fmt::join(names, ", "));
}

StatusOr<ProcessIdentity*> FindDaemon(ClusterState* state, const std::string& daemon) {
  if (daemon == kCoordinatorDaemon) return &state->coordinator;
  if (daemon == kRelayDaemon) {
    if (state->relay.pid != 0) return &state->relay;
    return FailedPrecondition(
        "cluster '{}' has no relay: it runs while links have delay, jitter or loss{}", state->name,
        state->delay_by == DelayBy::kNetem ? " and the kernel has no netem" : "");
  }
  StatusOr<uint32_t> number = WorkerNumber(*state, daemon);
  if (!number.ok()) {
    return InvalidArgument("{}, the coordinator and, while links have a delay, the relay",
                           Message(number.status()));
  }
  return &state->workers[*number - 1].process;
}

void ChangeQuality(const LinkChange& change, LinkQuality* quality) {
  if (change.delay) quality->delay = *change.delay;
  if (change.jitter) quality->jitter = *change.jitter;
  if (change.loss) quality->loss = *change.loss;
}

void ChangeOneLink(const LinkChange& change, ClusterWorkerState* worker) {
  LinkParameters& link = worker->link;
  if (change.up_bits_per_second) link.up_bits_per_second = *change.up_bits_per_second;
  if (change.down_bits_per_second) link.down_bits_per_second = *change.down_bits_per_second;
  ChangeQuality(change, &link.quality);
  if (change.connected) worker->link_up = *change.connected;
}

void ChangePath(const LinkChange& change, uint32_t from, uint32_t to, ClusterState* state) {
  const std::string& sender = state->workers[from - 1].name;
  auto path = std::ranges::find_if(state->paths, [&](const PathParameters& known) {
    return known.from == sender && known.to == change.to;
  });
  if (path == state->paths.end()) {
    path = state->paths.insert(path, {.from = sender, .to = change.to, .quality = {}});
  }
  if (change.up_bits_per_second) path->bits_per_second = *change.up_bits_per_second;
  if (!change.delay && !change.jitter && !change.loss) return;
  if (!path->quality) path->quality = QualityOf(*state, from, to);
  ChangeQuality(change, &*path->quality);
}

Status Change(const LinkChange& change, ClusterState* state) {
  std::vector<uint32_t> numbers;
  if (change.worker == "all") {
    for (uint32_t number = 1; number <= state->workers.size(); ++number) numbers.push_back(number);
  } else {
    LH_ASSIGN_OR_RETURN(const uint32_t number, WorkerNumber(*state, change.worker));
    numbers.push_back(number);
  }
  if (change.to.empty()) {
    for (const uint32_t number : numbers) ChangeOneLink(change, &state->workers[number - 1]);
    return absl::OkStatus();
  }
  LH_ASSIGN_OR_RETURN(const uint32_t to, WorkerNumber(*state, change.to));
  if (change.down_bits_per_second || change.connected) {
    return absl::InvalidArgumentError(
        "what one worker sends to another has one rate, and cannot be cut alone");
  }
  if (change.worker == change.to) {
    return InvalidArgument("{} sends nothing to itself; name another worker", change.to);
  }
  for (const uint32_t from : numbers) {
    if (from != to) ChangePath(change, from, to, state);
  }
  return absl::OkStatus();
}

// The paths of a cluster's state as a topology has them.
Status PutTopology(const TopologySpec& topology, ClusterState* state) {
  for (PathParameters& path : state->paths) {
    path.bits_per_second = 0;
    path.quality.reset();
  }
  const auto workers_of = [&](const std::string& region) -> const std::vector<std::string>& {
    return std::ranges::find(topology.regions, region, &TopologyRegion::name)->workers;
  };
  for (const TopologyRegion& region : topology.regions) {
    for (const std::string& worker : region.workers) {
      const Status known = WorkerNumber(*state, worker).status();
      if (!known.ok()) return Annotate(known, fmt::format("topology.regions.{}", region.name));
    }
  }
  for (const TopologyLink& link : topology.links) {
    for (const std::string& one : workers_of(link.one)) {
      for (const std::string& other : workers_of(link.other)) {
        for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
          if (from == to) continue;
          LH_RETURN_IF_ERROR(Change({.worker = from,
                                     .to = to,
                                     .up_bits_per_second = link.bits_per_second,
                                     .down_bits_per_second = {},
                                     .delay = link.quality.delay,
                                     .jitter = link.quality.jitter,
                                     .loss = link.quality.loss,
                                     .connected = {}},
                                    state));
        }
      }
    }
  }
  return absl::OkStatus();
}

Status StartEverything(const ClusterUpOptions& options, ClusterState* state, ProgressLine* progress,
                       InterruptGuard* interrupts) {
  const Deadline deadline = Deadline::After(options.patience);
  LH_RETURN_IF_ERROR(WriteClusterState(*state));  // From here on, `down` knows the directory.
  if (options.topology) LH_RETURN_IF_ERROR(PutTopology(*options.topology, state));
  // With TLS the coordinator makes it.
  if (state->insecure) LH_RETURN_IF_ERROR(GenerateTokenFile(state->token_file));
  LH_RETURN_IF_ERROR(BuildNetwork(options.delay_by, state, progress, interrupts));
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

// Under the cluster's lock: the links that `edit` makes of those that there are.
Status EditLinks(const std::string& name, const std::function<Status(ClusterState*)>& edit) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(name, kLockPatience));
  LH_ASSIGN_OR_RETURN(const ClusterState before, ReadClusterState(name));
  ClusterState after = before;
  LH_RETURN_IF_ERROR(edit(&after));
  Status applied = ApplyLinks(before, &after);
  LH_RETURN_IF_ERROR(WriteClusterState(after));
  return applied;
}

}  // namespace

std::string NameOption(const std::string& name) {
  return name == kDefaultClusterName ? "" : " --name " + name;
}

StatusOr<ClusterState> ClusterUp(const ClusterUpOptions& options) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckClusterName(options.name));
  LH_RETURN_IF_ERROR(CheckLinkQuality(options.link.quality));
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(options.name, absl::ZeroDuration()));
  LH_RETURN_IF_ERROR(CheckNotThere(options.name));
  LH_ASSIGN_OR_RETURN(ClusterState state, InitialState(options));
  ProgressLine progress;
  const Status started = StartEverything(options, &state, &progress, &interrupts);
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

Status ChangeLinks(const std::string& name, const std::vector<LinkChange>& changes) {
  return EditLinks(name, [&](ClusterState* state) -> Status {
    for (const LinkChange& change : changes) LH_RETURN_IF_ERROR(Change(change, state));
    return absl::OkStatus();
  });
}

Status ApplyTopology(const std::string& name, const TopologySpec& topology) {
  return EditLinks(name, [&](ClusterState* state) { return PutTopology(topology, state); });
}

Status KillDaemon(const std::string& name, const std::string& daemon) {
  InterruptGuard interrupts;
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const auto lock, ClusterLock::Acquire(name, kLockPatience));
  LH_ASSIGN_OR_RETURN(ClusterState state, ReadClusterState(name));
  LH_ASSIGN_OR_RETURN(ProcessIdentity * process, FindDaemon(&state, daemon));
  if (!IsAlive(*process)) {
    return FailedPrecondition("{} is not running; `longhaul cluster start {}{}` starts it again",
                              daemon, daemon, NameOption(name));
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
    return FailedPrecondition("{} is running already (process {})", daemon, process->pid);
  }
  if (daemon == kRelayDaemon) {
    LH_RETURN_IF_ERROR(StartRelay(&state));
    return WriteClusterState(state);
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
