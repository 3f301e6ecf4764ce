// What really happens in a simulated cluster, whatever the coordinator has heard of it: who is at
// which step, what lies on which disk, which faults there were.
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
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "tests/sim/coordinator/disk.h"
#include "tests/sim/coordinator/random.h"
#include "tests/sim/coordinator/timeline.h"

namespace longhaul::coordinator::sim {

struct EpochKey {
  std::string run;
  uint64_t epoch = 0;
  auto operator<=>(const EpochKey&) const = default;
};

// The stages of one epoch and their data path, which the coordinator does not see.
struct EpochTruth {
  struct Member {
    size_t worker = 0;
    uint64_t step = 0;                    // newest that it has done
    std::map<CellId, std::string> dials;  // neighbours, at the addresses that it knows
  };
  std::map<CellId, Member> members;     // whose links are open
  std::map<CellId, uint64_t> finished;  // cell -> its last step
  std::map<CellId, bool> left;          // cell -> it said goodbye
  std::set<CellId> failed;              // cells that reported an error
  // Rates of the newest steps.
  std::map<uint64_t, std::map<CellId, Setting>> settings;
  std::optional<uint64_t> stop_at;
};

// Per second of virtual time, or per occasion. All zero: nothing goes wrong.
struct Faults {
  // Faults of workers.
  double crash = 0, freeze = 0, error = 0, nonfinite = 0, disk_full = 0, slow = 0, move = 0;
  double miscompute = 0;
  // More faults of workers: a stage makes no progress until somebody ends its process; a process
  // that dies again and again; a second process with the same identity.
  double hang = 0, flap = 0, twin = 0;
  // Faults of disks: a shard, or a copy at the coordinator, changes; a machine is lost with its
  // disk.
  double rot = 0, machine_lost = 0;
  // Whether the second stage of each run called kDoomed fails in every epoch, with another text.
  bool doom = false;
  // Only moves, and no other faults: a run goes on, so none may be blamed on them.
  bool moves_alone = false;
  // Only sessions end, and the coordinator dies: what trains goes on without both.
  bool sessions_alone = false;
  // Only what a run recovers from, as often as it takes: none may fail.
  bool curable_alone = false;
  // Faults of connections to the coordinator, and of data links. `late`: what was under way when a
  // connection broke arrives after all, when the worker may have opened another session.
  double cut = 0, silent_cut = 0, cut_one_way = 0, delay = 0, twice = 0, late = 0, data_cut = 0;
  // Faults of the coordinator.
  double coordinator_crash = 0, coordinator_stall = 0, crash_at_write = 0, slow_store = 0;
  double data_failure = 0, wall_jump = 0;
};

// (run, epoch, probe).
using ProbeId = std::tuple<std::string, uint64_t, uint64_t>;

struct World {
  explicit World(uint64_t seed, bool print) : timeline(print), random(seed) {}

  Timeline timeline;
  Random random;
  Faults faults;
  std::map<EpochKey, EpochTruth> epochs;
  std::map<std::string, Disk> disks;           // by worker id: they survive processes
  std::map<ProbeId, std::set<size_t>> probes;  // the workers that took part in measuring a link
  // check -> who expects files of it, of which epoch of which run.
  struct Take {
    std::string worker, run;
    uint64_t epoch = 0;
  };
  std::map<uint64_t, Take> takes;
  std::map<std::pair<size_t, uint64_t>, MonoTime> gives;  // (worker, check) -> asked since
  std::set<std::string> copies;  // hashes of shards that the coordinator has a copy of
  std::set<std::string> copies_harmed;
  // A worker sends the coordinator a shard. False: nobody answers.
  std::function<bool(const std::string& worker, const std::string& sha256)> send_copy;
  // Newest fault of each worker, of its links too. To judge whom a failure names.
  std::map<std::string, MonoTime> fault_of;
  std::map<std::string, MonoTime> fault_began;                   // of each worker, the newest
  std::map<std::pair<size_t, size_t>, MonoTime> data_cut_until;  // by workers, smaller first
  std::vector<MonoTime> frozen_until;                            // by worker
  std::vector<uint64_t> moves;                                   // by worker, so far
  std::map<size_t, MonoTime> moved_at;                           // by worker
  std::vector<uint64_t> machines_lost;                           // by worker, so far
  std::vector<bool> has_twin;                                    // by worker, once
  std::vector<uint64_t> incarnations;                            // by worker, so far
  // A step that is trained again has the same loss, and stages promise that; else every epoch has
  // its own losses, so that a mix of two epochs shows.
  bool steps_repeat = false;
  std::set<std::pair<EpochKey, uint64_t>> miscomputed;  // steps whose loss is wrong
  std::string violation;                                // the first thing that must never happen

  template <class... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    if (!violation.empty()) return;
    violation = fmt::format(format, std::forward<Args>(args)...);
    timeline.Note("VIOLATION: {}", violation);
  }
  double LossAt(const EpochKey& key, uint64_t step) const;
  // Made on the disk of the worker's first start: another machine has another one.
  std::string IdOf(size_t worker) const;
  // The worker's place, from its id.
  size_t IndexOf(const std::string& id) const;
  // Nothing has gone wrong since.
  MonoTime LastFault() const;
  // The address that the worker has now.
  std::string AddressOf(size_t worker) const;
  // Cells of one epoch, neighbours: whether who dials knows where the other one is.
  bool Finds(const EpochTruth& epoch, const CellId& a, const CellId& b) const;
  // Something happens to `worker` now, and lasts so long.
  void Blame(size_t worker, absl::Duration length = absl::ZeroDuration());
  bool CanTalk(size_t a, size_t b) const {
    const auto cut = data_cut_until.find(std::minmax(a, b));
    return (cut == data_cut_until.end() || cut->second <= timeline.now()) &&
           frozen_until[a] <= timeline.now() && frozen_until[b] <= timeline.now();
  }
};

// The name of runs whose stages fail for ever, where Faults::doom says so.
inline constexpr std::string_view kDoomed = "run2";

inline std::string WorkerName(size_t index) {
  return "w" + std::to_string(index + 1);
}

// What the stages of an epoch compute, so that a mix of two epochs shows.
// What a link carries from one worker to another while a run's epoch is planned.
double RateOf(const EpochKey& key, size_t from, size_t to);
inline ProbeId ProbeKey(const v1::WorkerCommand& command) {
  return {command.run_id(), command.epoch(), command.probe_link().probe()};
}
// What a microbatch takes; another time after some steps.
double ForwardSecondsOf(const EpochKey& key, uint64_t step);
// Another plan, of any depths and leads that can be.
Plan AnyRetune(const RunSpec& spec, const Plan& plan);
double LossOf(const EpochKey& key, uint64_t step);
std::string ShardHash(const EpochKey& key, const ShardName& name);

}  // namespace longhaul::coordinator::sim
