// The truth about a simulated cluster, which the coordinator does not see: the step of each worker,
// the contents of disks, and all faults. Simulated workers act on it, and checkers compare the
// coordinator's actions with it. Threads: one. All times are virtual.
//
// Words: an epoch is one attempt to train a run. A cell is one stage of one replica. A worker is
// named by its number from 0, by its name ("w1" for number 0), or by its worker id ("id-w1").
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coordinator/state/run_record.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "tests/sim/coordinator/disk.h"
#include "tests/sim/coordinator/random.h"
#include "tests/sim/coordinator/timeline.h"
#include "worker/agent/obedience.h"

namespace longhaul::coordinator::sim {

// `stamp`: of the epoch's assignment (base/ids.h), since two coordinators may begin epochs with the
// same number; 0: it has none yet.
struct EpochKey {
  std::string run;
  uint64_t epoch = 0;
  uint64_t stamp = 0;
  auto operator<=>(const EpochKey&) const = default;
};
inline EpochKey KeyOf(const RunRecord& record) {
  return {record.id.value(), record.epoch.value(),
          record.plan ? record.plan->assignment.stamp().value() : 0};
}
inline EpochKey KeyOf(const v1::WorkerCommand& command) {
  return {command.run_id(), command.epoch(), command.stamp()};
}

// The cells of one epoch and the links between them.
struct EpochTruth {
  struct Member {
    size_t worker = 0;
    uint64_t step = 0;                    // newest step that the cell has done
    std::map<CellId, std::string> dials;  // neighbors that the cell dials, and their addresses
  };
  std::map<CellId, Member> members;     // cells that take part now
  std::map<CellId, uint64_t> finished;  // cells that ended training -> last step
  std::map<CellId, bool> left;          // cells that left -> true if they told their neighbors
  std::set<CellId> failed;              // cells that reported an error
  // For each of the newest steps, the settings with which the cells ran the step.
  std::map<uint64_t, std::map<CellId, Setting>> settings;
  std::optional<uint64_t> stop_at;  // the run stops after this step; nullopt: no stop decided
};

// Probabilities of faults: for each second of virtual time, or for each action that can fail. All
// zero: no faults.
struct Faults {
  // Faults of workers: death of the process, a pause of it, an error of a stage, a loss that is not
  // finite, a full disk, slow work, a new address; a wrong result (miscompute).
  double crash = 0, freeze = 0, error = 0, nonfinite = 0, disk_full = 0, slow = 0, move = 0;
  double miscompute = 0;
  // More faults of workers: a stage that makes no progress until its process ends (hang), a process
  // that dies again and again (flap), a second process with the same identity (twin).
  double hang = 0, flap = 0, twin = 0;
  // Faults of disks: a checkpoint file, or its copy at the coordinator, is damaged (rot); a machine
  // is lost with its disk.
  double rot = 0, machine_lost = 0;
  // The second stage of the run kDoomed fails in every epoch, each time with another text.
  bool doom = false;
  // The only faults are new addresses of workers. Runs survive them, so no failure may be explained
  // by a new address.
  bool moves_alone = false;
  // The only faults are ended sessions and deaths of the coordinator. A run that trains must go on
  // without both.
  bool sessions_alone = false;
  // The only faults are those from which a run can recover. No run may fail.
  bool curable_alone = false;
  // Faults of streams to the coordinator, and of links between workers (data_cut). `twice`: a
  // message arrives twice. `late`: messages under way when a stream broke arrive after all, when
  // the worker may have opened another session.
  double cut = 0, silent_cut = 0, cut_one_way = 0, delay = 0, twice = 0, late = 0, data_cut = 0;
  // Faults of the coordinator. crash_at_write: it dies before or after it stores a tick's writes,
  // or between its commands. wall_jump: its wall clock jumps.
  double coordinator_crash = 0, coordinator_stall = 0, crash_at_write = 0, slow_store = 0;
  double data_failure = 0, wall_jump = 0;
  // An access of the object store fails, because nobody reaches it.
  double store_away = 0;
  // A worker is told to end, as on a machine that is taken away. It has its own random numbers, so
  // that seeds meet the other faults as before.
  double leave = 0;
};

// Identifies the measurement of one link: run, epoch, number of the measurement.
using ProbeId = std::tuple<std::string, uint64_t, uint64_t>;

struct World {
  // `print`: print every note to standard output.
  explicit World(uint64_t seed, bool print)
      : timeline(print), random(seed), leave_random(seed + 0x1ea7e5) {}

  Timeline timeline;
  Random random;
  Random leave_random;  // for Faults::leave
  Faults faults;
  std::map<EpochKey, EpochTruth> epochs;
  std::map<std::string, Disk> disks;  // by worker id; they survive the worker's process
  // The leader that each worker obeyed last, by worker id, as its disk has it.
  std::map<std::string, worker::Obeyed> obeyed;
  std::map<ProbeId, std::set<size_t>> probes;  // the workers that took part in measuring a link
  // A worker (by id) that waits for checkpoint files (shards) from another worker, by the number of
  // the coordinator's command.
  struct Take {
    std::string worker, run;
    uint64_t epoch = 0;
  };
  std::map<uint64_t, Take> takes;
  // (worker, number of the command) -> since when the worker tries to send its files.
  std::map<std::pair<size_t, uint64_t>, MonoTime> gives;
  std::set<std::string> copies;         // hashes of shards that the coordinator has a copy of
  std::set<std::string> copies_harmed;  // hashes of copies that a fault destroyed
  // The object store: what lies at each address. A hash stands for a shard's contents. A
  // description (run/stored/stored_checkpoint.h) has the hashes of its files.
  std::map<std::string, std::string> objects;
  std::set<std::string> objects_harmed;  // addresses of objects that a fault changed or deleted
  // A worker (by id) uploads a shard to the coordinator. False: the coordinator does not run.
  std::function<bool(const std::string& worker, const std::string& sha256)> send_copy;
  // Called when a worker deletes its files of a run's checkpoint, because it was told to.
  std::function<void(const std::string& run, uint64_t step)> dropped;
  // When the newest fault of each worker and of its links ends, by worker name; "coordinator": of
  // the coordinator. Checkers compare it with the worker that a failure names.
  std::map<std::string, MonoTime> fault_of;
  std::map<std::string, MonoTime> fault_began;  // when the newest fault began, by worker name
  // Pairs of workers, the smaller number first -> until when their links are cut.
  std::map<std::pair<size_t, size_t>, MonoTime> data_cut_until;
  // For each worker: until when it is paused, how often and when its address changed, how many
  // machines it lost, whether it ever had a twin, how many processes it had.
  std::vector<MonoTime> frozen_until;
  std::vector<uint64_t> moves;
  std::map<size_t, MonoTime> moved_at;
  std::vector<uint64_t> machines_lost;
  std::vector<bool> has_twin;
  std::vector<uint64_t> incarnations;
  // True: a step that is trained again has the same loss, as stages with deterministic numerics
  // promise. False: each epoch has its own losses, so a mix of two epochs is noticed.
  bool steps_repeat = false;
  std::set<std::pair<EpochKey, uint64_t>> miscomputed;  // steps whose loss is wrong
  std::string violation;                                // the first failed check; empty: none

  // Reports a failed check. Only the first one is kept.
  template <class... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    if (!violation.empty()) return;
    violation = fmt::format(format, std::forward<Args>(args)...);
    timeline.Note("VIOLATION: {}", violation);
  }
  // Returns the loss that the stages report for this step.
  double LossAt(const EpochKey& key, uint64_t step) const;
  // Returns the id of a worker. Each machine has its own id, so a lost machine changes the id.
  std::string IdOf(size_t worker) const;
  // Returns the number of a worker, from any of its ids.
  size_t IndexOf(const std::string& id) const;
  // True if the object store is out of reach for one access.
  bool StoreIsAway();
  // Returns when the last fault ended or will end.
  MonoTime LastFault() const;
  // Returns the worker's present address.
  std::string AddressOf(size_t worker) const;
  // True if the one of two neighboring cells that dials knows the other one's present address.
  // Both must be members of `epoch`.
  bool Finds(const EpochTruth& epoch, const CellId& a, const CellId& b) const;
  // Records a fault of `worker` that begins now and lasts for `length`.
  void Blame(size_t worker, absl::Duration length = absl::ZeroDuration());
  // True if two workers' link works now: it is not cut, and neither worker is paused.
  bool CanTalk(size_t a, size_t b) const {
    const auto cut = data_cut_until.find(std::minmax(a, b));
    return (cut == data_cut_until.end() || cut->second <= timeline.now()) &&
           frozen_until[a] <= timeline.now() && frozen_until[b] <= timeline.now();
  }
};

// The name of the run whose second stage always fails if Faults::doom is true.
inline constexpr std::string_view kDoomed = "run2";

inline std::string WorkerName(size_t index) {
  return "w" + std::to_string(index + 1);
}

// The next functions compute results from a run's epoch, so that a mix of two epochs is noticed.
// Pure.
//
// Returns the measured rate of a link from one worker to another, in bits per second.
double RateOf(const EpochKey& key, size_t from, size_t to);
inline ProbeId ProbeKey(const v1::WorkerCommand& command) {
  return {command.run_id(), command.epoch(), command.probe_link().probe()};
}
// Returns the time of a microbatch's forward pass, which may change every 20 steps.
double ForwardSecondsOf(const EpochKey& key, uint64_t step);
// Returns `plan` with other valid settings: how many microbatches are in flight in each cell
// (depth), and by how many activations go ahead of gradients (activation_lead). nullopt: the run
// keeps this plan, however often it is asked for.
std::optional<Plan> AnyRetune(const RunSpec& spec, const Plan& plan);
// Returns the loss of a step, and the hash of a checkpoint file.
double LossOf(const EpochKey& key, uint64_t step);
std::string ShardHash(const EpochKey& key, const ShardName& name);

}  // namespace longhaul::coordinator::sim
