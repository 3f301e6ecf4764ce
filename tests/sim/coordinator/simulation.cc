#include "tests/sim/coordinator/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/state/ledger/manifests.h"
#include "tests/sim/coordinator/chaos.h"
#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/cluster.h"
#include "tests/sim/coordinator/heal_checker.h"

namespace longhaul::coordinator::sim {
namespace {

// How often somebody looks whether all is as it should be: that takes longer than most events.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
// Once all faults are over, how long until nothing may be under way any more that they disturbed:
// an end that has not noticed a silent cut, a coordinator that waits for workers, timings, links,
// and the training itself.
constexpr absl::Duration kHealLimit = absl::Seconds(400);
// By then every end has noticed what the last faults did to it.
constexpr absl::Duration kLongestRecovery = absl::Seconds(40);
constexpr absl::Duration kIdleLimit = absl::Seconds(60);
// From the end of all faults until one of two coordinators leads, and is sure of it.
constexpr absl::Duration kLedLimit = absl::Seconds(30);
// One short run that nothing disturbs.
constexpr absl::Duration kRunLimit = absl::Seconds(200);
// From a loss until the replicas that are left train. Shorter than a run waits for a worker that it
// misses (reattach_timeout), after which it is planned anew.
constexpr absl::Duration kFewerLimit = absl::Seconds(25);
// From the restart of a coordinator until a run trains with the replica that it was about to add.
constexpr absl::Duration kGrowLimit = absl::Seconds(60);

Cluster* at_hand = nullptr;
uint64_t seed_at_hand = 0;

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options) : cluster_(options), heal_(&cluster_) {
    at_hand = &cluster_;
    seed_at_hand = options.seed;
  }
  ~Simulation() { at_hand = nullptr; }

  SimulationResult Run() {
    cluster_.Begin();
    Chaos chaos(&cluster_);
    chaos.Begin();
    RunUntil(chaos.length(), [] { return false; });
    chaos.End();
    // A coordinator that is stopped goes on only then.
    healed_at_ = std::max(world().timeline.now(), world().fault_of["coordinator"]);
    if (cluster_.pair) {
      EndOfPair();
      return Result();
    }
    if (Fine()) MustSettle();
    if (Fine()) MustStop();
    if (Fine()) MustResume();
    if (Fine()) MustTrain();
    if (Fine()) MustGoOnWithFewer();
    if (Fine() && world().random.Chance(0.3)) MustGoOnFromTheStore();
    if (Fine()) checkers().CheckRecords();
    if (Fine()) MustKnowAll();
    return Result();
  }

 private:
  World& world() { return cluster_.world; }
  const Checkers& checkers() const { return cluster_.checkers; }
  Checkers& checkers() { return cluster_.checkers; }
  bool Fine() { return cluster_.pair ? cluster_.pair->Fine() : world().violation.empty(); }

  // False: `done` has not come true within `limit`. It is looked for so often; zero: after each
  // event.
  template <class Done>
  bool RunUntil(absl::Duration limit, const Done& done, absl::Duration every = kLookEvery) {
    const MonoTime end = world().timeline.now() + limit;
    MonoTime look_at = world().timeline.now();
    while (Fine() && world().timeline.now() < end) {
      if (world().timeline.now() >= look_at) {
        if (done()) return true;
        heal_.Look();
        look_at = world().timeline.now() + every;
      }
      world().timeline.Step();
    }
    return Fine() && done();
  }

  void EndOfPair() {
    if (Fine()) MustBeLed();
    if (Fine()) MustSettle();
    if (Fine()) MustStop();
    if (Fine()) checkers().CheckRecords();
    if (Fine()) MustKnowAll();
    if (Fine()) MustAgree();
    if (Fine()) cluster_.CheckSubmissions();
  }

  // Somebody leads soon after the faults.
  void MustBeLed() {
    const absl::Duration limit = healed_at_ - world().timeline.now() + kLedLimit;
    if (!RunUntil(limit, [this] { return cluster_.pair->IsLed(); }) && Fine()) {
      world().Violate("nobody leads {} after all faults have ended: {}",
                      absl::FormatDuration(kLedLimit), cluster_.Describe());
    }
  }

  // Whoever leads has what was committed, by whomever.
  void MustAgree() {
    for (const auto& [id, record] : checkers().records()) {
      const auto run = cluster_.leader().views().RunOf(id.value());
      if (run.ok() && run->state() == ToString(record.state) && run->step() == record.step)
        continue;
      world().Violate("{} is {} at step {}, and the leader says: {}", id.value(),
                      ToString(record.state), record.step,
                      run.ok() ? run->state() : Message(run.status()));
    }
  }

  // Whatever a user need not do anything about has come to its end, or trains.
  bool IsSettled(const RunRecord& record) {
    switch (record.state) {
      case RunState::kDone:
      case RunState::kStopped:
      case RunState::kFailed:
        return true;
      case RunState::kRunning:
        return IsEndless(record.spec) && !checkers().stop_is_owed(record.id, record.epoch) &&
               heal_.HasTrainedSince(record.id, healed_at_ + kLongestRecovery) &&
               HasPlannedSettings(record);
      case RunState::kQueued:
        return !heal_.ExcuseOf(record).empty();
      default:
        return false;
    }
  }

  // Whatever was half changed when the coordinator died: all stages train with the plan's settings.
  bool HasPlannedSettings(const RunRecord& record) {
    const auto& by_step = world().epochs[KeyOf(record)].settings;
    return std::ranges::all_of(record.plan->assignment.cells, [&](const Cell& cell) {
      for (auto step = by_step.rbegin(); step != by_step.rend(); ++step) {
        const auto now = step->second.find(cell.id);
        if (now == step->second.end()) continue;
        return now->second.depth == cell.setting.depth &&
               now->second.activation_lead == cell.setting.activation_lead;
      }
      return false;
    });
  }

  bool AllConnected() {
    return std::all_of(cluster_.workers.begin(), cluster_.workers.end(),
                       [](const auto& worker) { return worker->connected(); });
  }

  void MustSettle() {
    const auto settled = [this] {
      return world().timeline.now() - healed_at_ > kLongestRecovery && AllConnected() &&
             cluster_.all_answered() &&
             std::all_of(checkers().records().begin(), checkers().records().end(),
                         [this](const auto& entry) { return IsSettled(entry.second); });
    };
    // Runs may have to wait for each other.
    const absl::Duration limit = kHealLimit + cluster_.UnendedRuns() * kRunLimit;
    if (!RunUntil(limit, settled) && Fine()) {
      world().Violate("long after all faults: {}", cluster_.Describe());
    }
  }

  void MustStop() {
    const absl::Duration limit = (cluster_.UnendedRuns() + 1) * kRunLimit;
    MonoTime ask_at = world().timeline.now();
    const auto ended = [&] {
      if (cluster_.UnendedRuns() == 0 && cluster_.all_answered()) return true;
      if (world().timeline.now() >= ask_at) {
        ask_at = world().timeline.now() + absl::Seconds(20);
        for (const auto& [id, record] : checkers().records()) {
          if (!HasEnded(record.state)) cluster_.Stop(id.value(), /*now=*/false);
        }
      }
      return false;
    };
    if (!RunUntil(limit, ended) && Fine()) {
      world().Violate("long after all were stopped: {}", cluster_.Describe());
    }
    MustBeIdle();
  }

  void MustBeIdle() {
    std::string held;
    const auto idle = [&] {
      held.clear();
      for (const auto& worker : cluster_.leader().views().Workers(world().timeline.now())) {
        if (!worker.run_id().empty()) held += worker.name() + " is held by " + worker.run_id();
      }
      return held.empty() && std::all_of(cluster_.workers.begin(), cluster_.workers.end(),
                                         [](const auto& worker) { return worker->idle(); });
    };
    if (!RunUntil(kIdleLimit, idle) && Fine()) {
      world().Violate("a worker stays busy though every run has ended: {}{}", held,
                      cluster_.Describe());
    }
  }

  // What was stopped or has failed can go on, from what is offered; and what is done, for more
  // steps.
  void MustResume() {
    for (const std::string& name : cluster_.RunNames()) {
      const RunRecord *newest = nullptr, *done = nullptr;
      for (const v1::RunStatus& run : cluster_.leader().views().Runs()) {
        const RunRecord& record = checkers().records().at(RunId(run.run_id()));
        if (record.spec.name != name) continue;
        if (record.state == RunState::kDone) {
          if (done == nullptr) done = &record;
          continue;
        }
        newest = &record;  // newest first
        break;
      }
      if (newest == nullptr && done != nullptr && !done->checkpoints.empty()) newest = done;
      if (newest == nullptr) continue;
      const uint32_t replicas = newest->spec.replicas.count;
      if (*newest->spec.pipeline.stages * replicas > cluster_.workers.size()) continue;
      if (!heal_.ExcuseByCheckpoints(*newest).empty()) continue;
      const RunId id = newest->id;
      const uint64_t from = newest->checkpoints.empty() ? 0 : newest->checkpoints.back().step();
      RunSpec spec = newest->spec;
      spec.train.steps = (newest == done ? std::max(from, spec.train.steps) : from) + 6;
      if (world().random.Chance(0.5)) {
        const auto most = std::min<uint64_t>(cluster_.workers.size() / replicas, 4);
        spec.pipeline.stages = static_cast<uint32_t>(1 + world().random.Below(most));
      }
      cluster_.Submit(spec, /*resume=*/true);
      MustBeDone(id.value());
      if (!Fine()) return;
    }
  }

  void MustTrain() {
    const auto stages = static_cast<uint32_t>(std::min<size_t>(cluster_.workers.size(), 4));
    RunSpec spec = ShortSpec("last", stages);
    cluster_.Submit(spec, /*resume=*/false);
    MustBeDone("last");
  }

  // Whether the coordinator has all of the run's newest checkpoint.
  bool IsCopied(const std::string& name) {
    const auto run = cluster_.leader().views().RunOf(name);
    if (!run.ok()) return false;
    const RunRecord& record = checkers().records().at(RunId(run->run_id()));
    if (record.checkpoints.empty()) return false;
    const auto& files = record.checkpoints.back().files();
    return std::all_of(files.begin(), files.end(), [this](const v1::CheckpointFile& file) {
      return world().copies.contains(file.sha256()) &&
             std::any_of(file.holders().begin(), file.holders().end(),
                         [](const v1::ShardHolder& holder) { return holder.worker_id().empty(); });
    });
  }

  // A run that may do with fewer replicas loses a worker for good, and nobody can take its place.
  // It goes on at once, in place. When the worker is back, it goes on with all of them.
  void MustGoOnWithFewer() {
    const auto stages = static_cast<uint32_t>(cluster_.workers.size() / 2);
    if (stages == 0 || cluster_.workers.size() % 2 != 0 || stages > 4) return;
    RunSpec spec = EndlessSpec("fewer", stages);
    spec.replicas.count = 2;
    spec.recovery.attempts = 1000;
    spec.recovery.replicas = LostReplica::kContinue;
    spec.checkpoint.keep_copy = true;
    cluster_.Submit(spec, /*resume=*/false);
    const auto trains = [this](uint32_t replicas, uint64_t beyond) {
      const auto run = cluster_.leader().views().RunOf("fewer");
      return run.ok() && run->state() == "running" && run->replicas() == replicas &&
             run->checkpoint_step() > 0 && run->step() > beyond;
    };
    if (!RunUntil(kRunLimit, [&] { return trains(2, 0) && IsCopied("fewer"); })) {
      if (Fine()) world().Violate("fewer should train: {}", cluster_.Describe());
      return;
    }
    const uint64_t step = cluster_.leader().views().RunOf("fewer")->step();
    const size_t lost = cluster_.workers.size() - 1;
    world().Blame(lost);
    cluster_.workers[lost]->Crash(/*silent=*/false);
    if (!RunUntil(kFewerLimit, [&] { return trains(1, step); }) && Fine()) {
      world().Violate("fewer does not go on with the replica that is whole: {}",
                      cluster_.Describe());
    }
    cluster_.workers[lost]->Start();
    if (Fine()) MustGrowAfterRestart(trains);
    if (Fine()) MustStop();
  }

  // The coordinator dies while the word to stop for another number of replicas is under way.
  template <class Trains>
  void MustGrowAfterRestart(const Trains& trains) {
    const auto run = cluster_.leader().views().RunOf("fewer");
    const RunRecord& record = checkers().records().at(RunId(run->run_id()));
    if (!RunUntil(
            kRunLimit, [&] { return record.resize_asked; }, absl::ZeroDuration())) {
      if (Fine()) world().Violate("fewer should want its worker back: {}", cluster_.Describe());
      return;
    }
    const uint64_t step = record.step;
    world().fault_of["coordinator"] = world().timeline.now();
    cluster_.leader().Crash(/*silent=*/false);
    cluster_.leader().Start();
    if (!RunUntil(kGrowLimit, [&] { return trains(2, step); }) && Fine()) {
      world().Violate("fewer has stopped for its second replica or was to, and has none: {}",
                      cluster_.Describe());
    }
  }

  // Whether the object store has a checkpoint of the run.
  bool HasStored(const std::string& name) {
    const auto run = cluster_.leader().views().RunOf(name);
    return run.ok() && NewestStored(checkers().records().at(RunId(run->run_id()))) > 0;
  }

  // All machines are lost with their disks. The run goes on from what the object store has.
  void MustGoOnFromTheStore() {
    const auto stages = static_cast<uint32_t>(std::min<size_t>(cluster_.workers.size(), 4));
    RunSpec spec = EndlessSpec("stored", stages);
    spec.recovery.attempts = 1000;
    spec.checkpoint.to = "s3://bucket/sim";
    cluster_.Submit(spec, /*resume=*/false);
    if (!RunUntil(kRunLimit, [&] { return HasStored("stored"); })) {
      if (Fine()) world().Violate("stored should be in the store: {}", cluster_.Describe());
      return;
    }
    const RunId id(cluster_.leader().views().RunOf("stored")->run_id());
    const uint64_t stored = NewestStored(checkers().records().at(id));
    for (size_t worker = 0; worker < cluster_.workers.size(); ++worker) {
      world().Blame(worker);
      cluster_.workers[worker]->LoseMachine();
      cluster_.workers[worker]->Start();
    }
    uint64_t step = 0;
    const auto goes_on = [&] {
      const auto run = cluster_.leader().views().RunOf("stored");
      if (!run.ok() || run->state() != "running" || run->epoch() < 2) return false;
      step = checkers().records().at(id).plan->assignment.start_step;
      return true;
    };
    if (!RunUntil(kRunLimit, goes_on)) {
      if (Fine()) world().Violate("stored does not go on: {}", cluster_.Describe());
      return;
    }
    if (step < stored) {
      world().Violate("stored goes on from step {} though the store has that of {}", step, stored);
    }
    if (Fine()) MustStop();
  }

  void MustBeDone(const std::string& id_or_name) {
    bool begun = false;
    const auto done = [&] {
      const auto run = cluster_.leader().views().RunOf(id_or_name);
      if (!run.ok()) return false;
      const bool ended =
          run->state() == "done" || run->state() == "failed" || run->state() == "stopped";
      begun = begun || !ended;
      return run->state() == "done" || (begun && ended);
    };
    if (!RunUntil(kRunLimit, done) && Fine()) {
      world().Violate("{} should have trained to its end: {}", id_or_name, cluster_.Describe());
    }
    if (!Fine()) return;
    if (const auto run = cluster_.leader().views().RunOf(id_or_name); run->state() != "done") {
      world().Violate("{} is {} though nothing went wrong: {}", id_or_name, run->state(),
                      run->reason());
    }
    MustBeIdle();
  }

  void MustKnowAll() {
    if (cluster_.leader().views().Runs().size() != checkers().records().size()) {
      world().Violate("{} runs are stored, {} are shown", checkers().records().size(),
                      cluster_.leader().views().Runs().size());
    }
  }

  SimulationResult Result() {
    SimulationResult result;
    result.violation = world().violation;
    if (!Fine()) result.tail = world().timeline.Tail();
    result.hash = world().timeline.hash();
    result.notes = world().timeline.notes();
    result.virtual_seconds = absl::ToDoubleSeconds(world().timeline.elapsed());
    for (const v1::Event& event : checkers().events()) {
      for (const char* state : {"done", "stopped", "failed", "finishing"}) {
        result.seen[state] += event.kind() == "state" && event.text().starts_with(state);
      }
      for (const char* part : {"coordinator restarted",
                               "lost its link",
                               "the loss became",
                               "was lost",
                               "dropped a message",
                               "opened a new session",
                               "goes on from the checkpoint",
                               "no sign of life for",
                               "did not become ready",
                               "have not come from",
                               "stop asked",
                               "started anew",
                               "was asleep",
                               "could not be measured",
                               "depths or order change",
                               "all stages have the depths",
                               "keeps its stage",
                               "is back after",
                               "miss it too",
                               "did not come back within",
                               "recovering",
                               "in place",
                               "bit for bit",
                               "repeated and gave other numbers",
                               "waits for worker",
                               "is damaged",
                               "a worker was refused",
                               "without finishing a new step",
                               "to come back",
                               "planned anew",
                               "takes the place of",
                               "copies of every stage",
                               "is a spare",
                               "1 of 2 replicas from step",
                               "2 of 2 replicas from step",
                               "goes on from there with",
                               " is in s3://bucket/sim/",
                               "the next attempt follows in",
                               "s3://bucket/sim/"}) {
        result.seen[part] += event.text().find(part) != std::string::npos;
      }
      result.seen["checkpoint"] += event.kind() == "checkpoint";
    }
    if (cluster_.pair) result.seen = cluster_.pair->seen();
    return result;
  }

  Cluster cluster_;
  HealChecker heal_;
  MonoTime healed_at_;
};

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) {
  Simulation simulation(options);
  return simulation.Run();
}

void DescribeTheOneAtHand() {
  if (at_hand == nullptr) return;
  std::fprintf(stderr, "%s\nin the simulation of seed %llu\n",
               at_hand->world.timeline.Tail().c_str(),
               static_cast<unsigned long long>(seed_at_hand));
}

}  // namespace longhaul::coordinator::sim
