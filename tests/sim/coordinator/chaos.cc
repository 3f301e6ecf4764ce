#include "tests/sim/coordinator/chaos.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace longhaul::coordinator::sim {
namespace {

constexpr absl::Duration kMoment = absl::Milliseconds(500);
constexpr uint64_t kMostStages = 4;  // as many as the model has layers

}  // namespace

void Chaos::DrawRates() {
  Random& random = world_.random;
  // Many simulations have few kinds of faults: each kind has to be met alone, too.
  const double share = random.Unit();
  const auto maybe = [&](double most) {
    const bool has = random.Chance(share);
    const double rate = most * random.Unit() * random.Unit();
    return has ? rate : 0.0;
  };
  Faults& faults = world_.faults;
  faults.crash = maybe(0.02);
  faults.freeze = maybe(0.02);
  faults.error = maybe(0.005);
  faults.nonfinite = maybe(0.2);
  faults.disk_full = maybe(0.05);
  faults.slow = maybe(0.3);
  faults.hang = maybe(0.02);
  faults.flap = maybe(0.02);
  faults.twin = maybe(0.01);
  faults.rot = maybe(0.05);
  faults.machine_lost = maybe(0.01);
  faults.doom = random.Chance(0.3 * share);
  faults.cut = maybe(0.02);
  faults.silent_cut = maybe(0.05);
  faults.cut_one_way = maybe(0.05);
  faults.late = random.Chance(share) ? random.Unit() : 0;
  faults.delay = maybe(0.1);
  faults.twice = maybe(0.3);
  faults.data_cut = maybe(0.02);
  faults.coordinator_crash = maybe(0.05);
  faults.coordinator_stall = maybe(0.03);
  faults.crash_at_write = maybe(0.02);
  faults.slow_store = maybe(0.05);
  faults.data_failure = maybe(0.1);
  faults.wall_jump = maybe(0.05);
  faults.move = maybe(0.02);
  faults.miscompute = maybe(0.02);
  faults.store_away = maybe(0.5);
  world_.steps_repeat = random.Chance(0.7);
  if (random.Chance(0.1)) {
    faults = Faults{.move = 0.05 * random.Unit(), .moves_alone = true};
  } else if (random.Chance(0.3)) {
    faults.error = faults.nonfinite = faults.disk_full = faults.data_failure = 0;
    faults.miscompute = 0;
    faults.rot = faults.machine_lost = faults.twin = 0;
    faults.doom = false;
    faults.curable_alone = true;
  } else if (random.Chance(0.2)) {
    faults = Faults{.sessions_alone = true,
                    .cut = maybe(0.1),
                    .silent_cut = maybe(0.05),
                    .cut_one_way = maybe(0.05),
                    .late = random.Unit(),
                    .coordinator_crash = maybe(0.05),
                    .crash_at_write = maybe(0.02),
                    .slow_store = maybe(0.05)};
  }
  Random& leaves = world_.leave_random;
  const bool leave = !faults.moves_alone && !faults.sessions_alone && leaves.Chance(0.4);
  faults.leave = leave ? 0.03 * leaves.Unit() : 0;
  user_acts_ = 0.05 + 0.15 * random.Unit();
  user_resumes_ = maybe(2);
  length_ = random.Between(absl::Seconds(40), absl::Seconds(160));
  if (cluster_.pair) DrawRatesOfPair();
}

// No run may fail, whoever leads.
void Chaos::DrawRatesOfPair() {
  Random& random = world_.random;
  Faults& faults = world_.faults;
  if (random.Chance(0.5)) faults = Faults();
  faults.error = faults.nonfinite = faults.disk_full = faults.data_failure = 0;
  faults.miscompute = faults.rot = faults.machine_lost = faults.twin = 0;
  faults.coordinator_crash = faults.coordinator_stall = faults.crash_at_write = 0;
  faults.slow_store = faults.store_away = 0;
  faults.doom = faults.moves_alone = faults.sessions_alone = false;
  faults.curable_alone = true;
  user_acts_ = 0.1 + 0.2 * random.Unit();
  length_ = random.Between(absl::Seconds(30), absl::Seconds(90));
  cluster_.pair->DrawRates();
}

void Chaos::Begin() {
  DrawRates();
  Moment();
  if (cluster_.pair) MomentOfPair();
}

void Chaos::MomentOfPair() {
  if (over_) return;
  cluster_.pair->Moment();
  world_.timeline.After(Pair::kMoment, [this] { MomentOfPair(); });
}

void Chaos::End() {
  over_ = true;
  cluster_.calls.End();
  world_.faults = Faults();
  world_.data_cut_until.clear();
  for (const auto& twin : cluster_.twins) twin->Crash(/*silent=*/false);
  for (const auto& worker : cluster_.workers) {
    if (worker->hung()) worker->Crash(/*silent=*/false);
  }
  const MonoTime now = world_.timeline.now();
  std::fill(cluster_.away_until.begin(), cluster_.away_until.end(), now);
  if (cluster_.pair) cluster_.pair->End();
  world_.timeline.Note("all faults are over");
  // What was to come back later comes back anyway; Start does nothing to what runs.
  world_.timeline.After(absl::Seconds(1), [this] {
    if (cluster_.coordinator) cluster_.coordinator->Start();
    for (const auto& worker : cluster_.workers) worker->Start();
  });
}

bool Chaos::Happens(double per_second) {
  return world_.random.Chance(per_second * absl::ToDoubleSeconds(kMoment));
}

void Chaos::Moment() {
  if (over_) return;
  for (size_t worker = 0; worker < cluster_.workers.size(); ++worker) TroubleWorker(worker);
  TroubleDataPath();
  if (cluster_.coordinator) TroubleCoordinator();
  if (Happens(user_acts_)) UserActs();
  if (Happens(user_resumes_)) UserResumes();
  world_.timeline.After(kMoment, [this] { Moment(); });
}

void Chaos::TroubleWorker(size_t index) {
  Random& random = world_.random;
  SimWorker& worker = *cluster_.workers[index];
  const Faults& faults = world_.faults;
  if (Happens(faults.crash) && worker.running()) {
    const absl::Duration away = random.Between(absl::Milliseconds(10), absl::Seconds(20));
    world_.Blame(index, away);
    worker.Crash(random.Chance(0.3));
    world_.timeline.After(away, [&worker] { worker.Start(); });
  }
  if (Happens(faults.flap)) {
    const absl::Duration length = random.Between(absl::Seconds(5), absl::Seconds(40));
    world_.timeline.Note("{} flaps for {}", WorkerName(index), absl::FormatDuration(length));
    Flap(index, world_.timeline.now() + length);
  }
  if (Happens(faults.freeze)) {
    const absl::Duration length = random.Between(absl::Seconds(1), absl::Seconds(30));
    world_.Blame(index, length);
    worker.Freeze(length);
  }
  if (Happens(faults.move) && moved_at_[index] + absl::Seconds(8) <= world_.timeline.now()) {
    moved_at_[index] = world_.timeline.now();
    if (!faults.moves_alone) world_.Blame(index, absl::Seconds(20));
    worker.Move();
  }
  if (Happens(faults.twin)) StartTwin(index);
  Random& leaves = world_.leave_random;
  if (leaves.Chance(faults.leave * absl::ToDoubleSeconds(kMoment)) && worker.running()) {
    const absl::Duration limit = leaves.Between(absl::Milliseconds(100), absl::Seconds(30));
    const absl::Duration away = leaves.Between(absl::Milliseconds(10), absl::Seconds(20));
    world_.Blame(index, limit + away);
    worker.Leave(limit, away);
  }
  TroubleSession(index);
  TroubleDisk(index);
}

void Chaos::Flap(size_t index, MonoTime until) {
  if (over_ || world_.timeline.now() >= until) return;
  Random& random = world_.random;
  SimWorker& worker = *cluster_.workers[index];
  const absl::Duration away = random.Between(absl::Milliseconds(10), absl::Seconds(1));
  world_.Blame(index, away);
  worker.Crash(/*silent=*/false);
  world_.timeline.After(away, [this, index, until] {
    cluster_.workers[index]->Start();
    world_.timeline.After(world_.random.Between(absl::Milliseconds(100), absl::Seconds(6)),
                          [this, index, until] { Flap(index, until); });
  });
}

// Somebody has copied the worker's folder to another machine, and notices after a while.
void Chaos::StartTwin(size_t index) {
  SimWorker& twin = *cluster_.twins[index];
  if (twin.running()) return;
  const absl::Duration length = world_.random.Between(absl::Milliseconds(100), absl::Seconds(20));
  world_.Blame(index, length);
  twin.Start();
  world_.timeline.After(length, [&twin] { twin.Crash(/*silent=*/false); });
}

void Chaos::TroubleSession(size_t index) {
  Random& random = world_.random;
  SimWorker& worker = *cluster_.workers[index];
  const Faults& faults = world_.faults;
  const absl::Duration longest = absl::Seconds(faults.sessions_alone ? 15 : 90);
  const auto keep_away = [&] {
    const absl::Duration away =
        random.Chance(0.5) ? absl::ZeroDuration() : random.Between(absl::ZeroDuration(), longest);
    world_.Blame(index, away);
    cluster_.away_until[index] = std::max(cluster_.away_until[index], world_.timeline.now() + away);
  };
  if (Happens(faults.cut)) {
    world_.Blame(index);
    worker.CutSession(/*silent=*/false);
  }
  if (Happens(faults.silent_cut)) {
    keep_away();
    worker.CutSession(/*silent=*/true);
  }
  if (Happens(faults.cut_one_way)) {
    keep_away();
    worker.CutSessionOneWay(/*up=*/random.Chance(0.5));
  }
  if (Happens(faults.delay)) {
    const absl::Duration delay =
        random.Between(absl::Milliseconds(100), absl::Seconds(random.Chance(0.2) ? 15 : 4));
    if (delay > absl::Seconds(5)) world_.Blame(index, delay);
    worker.DelaySession(delay);
  }
}

void Chaos::TroubleDisk(size_t index) {
  Random& random = world_.random;
  SimWorker& worker = *cluster_.workers[index];
  const Faults& faults = world_.faults;
  if (Happens(faults.rot)) {
    if (random.Chance(0.2) && !world_.objects.empty()) {
      HarmObject();
    } else if (random.Chance(0.2) && !world_.copies.empty()) {
      const auto copy = world_.copies.begin();
      world_.copies_harmed.insert(*copy);
      world_.copies.erase(copy);
    } else if (const auto name = world_.disks[worker.id()].Rot(random)) {
      world_.Blame(index);
      world_.timeline.Note("{}'s shard of stage {} of step {} of {} rots", WorkerName(index),
                           name->stage, name->step, name->run);
    }
  }
  if (Happens(faults.machine_lost)) {
    const absl::Duration away = random.Between(absl::Seconds(1), absl::Seconds(90));
    world_.Blame(index, away);
    worker.LoseMachine();
    world_.timeline.After(away, [&worker] { worker.Start(); });
  }
}

void Chaos::HarmObject() {
  auto object = world_.objects.begin();
  std::advance(object, world_.random.Below(world_.objects.size()));
  world_.timeline.Note("{} is harmed", object->first);
  world_.objects_harmed.insert(object->first);
  if (world_.random.Chance(0.5)) {
    object->second = "rotten";
  } else {
    world_.objects.erase(object);
  }
}

void Chaos::TroubleDataPath() {
  const size_t count = cluster_.workers.size();
  if (count < 2 || !Happens(world_.faults.data_cut)) return;
  const size_t a = world_.random.Below(count), b = world_.random.Below(count);
  if (a == b) return;
  const absl::Duration length = world_.random.Between(absl::Milliseconds(500), absl::Seconds(25));
  world_.Blame(a, length);
  world_.Blame(b, length);
  world_.timeline.Note("the data path of {} and {} is cut for {}", WorkerName(a), WorkerName(b),
                       absl::FormatDuration(length));
  world_.data_cut_until[std::minmax(a, b)] = world_.timeline.now() + length;
}

void Chaos::TroubleCoordinator() {
  Random& random = world_.random;
  SimCoordinator& coordinator = *cluster_.coordinator;
  const Faults& faults = world_.faults;
  if (Happens(faults.coordinator_crash)) coordinator.Crash(random.Chance(0.2));
  if (!coordinator.running()) {  // also when it died at a write
    world_.fault_of["coordinator"] = world_.timeline.now();
    // Soon, mostly; sometimes it takes a while until somebody starts it again.
    if (Happens(random.Chance(0.5) ? 0.5 : 0.05)) coordinator.Start();
    return;
  }
  if (Happens(faults.coordinator_stall)) {
    const absl::Duration length = random.Between(absl::Seconds(1), absl::Seconds(60));
    world_.fault_of["coordinator"] = world_.timeline.now() + length;
    coordinator.Stall(length);
  }
  if (Happens(faults.wall_jump)) {
    coordinator.JumpWallClock(random.Between(-absl::Hours(48), absl::Hours(48)));
  }
}

void Chaos::UserActs() {
  Random& random = world_.random;
  const std::vector<std::string> names = cluster_.RunNames();
  const std::string& name = names[random.Below(names.size())];
  const uint64_t workers = cluster_.workers.size();
  const bool two = workers >= 2 && random.Chance(0.5);  // replicas
  const auto most = std::min<uint64_t>(two ? workers / 2 : workers + 1, kMostStages);
  const auto stages = static_cast<uint32_t>(1 + random.Below(most));
  RunSpec spec = random.Chance(0.5) ? ShortSpec(name, stages) : EndlessSpec(name, stages);
  if (random.Chance(0.5)) spec.pipeline.placement = PlacementKind::kAuto;
  spec.checkpoint.keep_copy = random.Chance(0.3);
  if (random.Chance(0.3)) spec.checkpoint.to = "s3://bucket/sim";
  constexpr uint32_t kAttempts[] = {0, 1, 5};
  spec.recovery.attempts = kAttempts[random.Below(std::size(kAttempts))];
  if (world_.faults.curable_alone) spec.recovery.attempts = 1000;
  if (random.Chance(0.3)) spec.recovery.every = 3;
  if (random.Chance(0.2)) spec.recovery.spares = 1;
  if (random.Chance(0.3)) spec.hooks.on_checkpoint = {"evaluate"};
  if (two) {
    spec.replicas.count = 2;
    spec.checkpoint.keep_copy = random.Chance(0.7);
    const bool may_continue = spec.recovery.attempts > 0 && random.Chance(0.8);
    if (may_continue) spec.recovery.replicas = LostReplica::kContinue;
  }
  switch (random.Below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
      cluster_.Submit(spec, /*resume=*/false);
      return;
    case 4:
    case 5: {
      RunSpec same = spec;
      for (const auto& [id, record] : cluster_.checkers.records()) {
        if (record.spec.name == name && random.Chance(0.5)) {
          same.pipeline.stages = record.spec.pipeline.stages;
        }
      }
      cluster_.Submit(same, /*resume=*/true);
      return;
    }
    case 6:
      cluster_.PlanOnly(spec);
      return;
    case 7:
      cluster_.Stop(name, /*now=*/true);
      return;
    case 8:
    case 9:
      cluster_.SetReplicas(name, static_cast<uint32_t>(1 + random.Below(2)));
      return;
    case 10:
      cluster_.TakeSamples(name);
      return;
    default:
      cluster_.Stop(name, /*now=*/false);
  }
}

// What has ended before its time goes on at once: its old epoch may still be heard of.
void Chaos::UserResumes() {
  for (const auto& [id, record] : cluster_.checkers.records()) {
    const bool ended = record.state == RunState::kFailed || record.state == RunState::kStopped;
    if (!ended || !world_.random.Chance(0.5)) continue;
    // All that no resume needs goes first.
    cluster_.CollectGarbage();
    cluster_.Submit(record.spec, /*resume=*/true);
    return;
  }
}

}  // namespace longhaul::coordinator::sim
