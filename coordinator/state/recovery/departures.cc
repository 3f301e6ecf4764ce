#include "coordinator/state/recovery/departures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/text.h"
#include "planner/copy_interval.h"

namespace longhaul::coordinator {
namespace {

// The longest time that a worker may take to leave.
constexpr double kLongestLeave = 3600;
// Time to stop, to open a link and to hash, beside the step and the bytes.
constexpr absl::Duration kMoveSlack = absl::Seconds(2);

}  // namespace

void Departures::On(Worker& worker, const v1::Leaving& leaving) {
  leaving_.insert(worker.id);
  const double said = leaving.seconds();
  // Its last word: the end of its session is the end of its process.
  if (worker.leaves_at && !(said > 0)) worker.may_leave = true;
  if (worker.leaves_at) return;
  const double seconds = std::isfinite(said) ? std::clamp(said, 0.0, kLongestLeave) : 0;
  worker.leaves_at = ledger_.now() + absl::Seconds(seconds);
  ledger_.ListChanged();
  Run* run = worker.held ? ledger_.FindRun(*worker.held) : nullptr;
  if (run != nullptr) ledger_.Changed(*run);
  const std::string why = Quoted(leaving.why());
  const std::string text =
      fmt::format("worker {} is leaving, within {}{}{}", ledger_.Label(worker),
                  longhaul::FormatDuration(absl::Seconds(seconds)), why.empty() ? "" : ": ", why);
  ledger_.Log(run, "worker", text);
}

void Departures::Advance() {
  for (auto it = leaving_.begin(); it != leaving_.end();) {
    Worker* worker = ledger_.FindWorker(*it);
    // Another process of it has begun, or this one has gone.
    if (worker == nullptr || !worker->leaves_at || !worker->session) {
      saved_.erase(*it);
      it = leaving_.erase(it);
      continue;
    }
    Advance(*worker);
    ++it;
  }
}

void Departures::Advance(Worker& worker) {
  Run* run = worker.held ? ledger_.FindRun(*worker.held) : nullptr;
  if (run != nullptr) {
    const StageRecord* stage = ledger_.StageOf(*run, worker);
    // A worker that was to take a place, and got the shards for it, has none: it goes.
    const bool has_place = std::ranges::any_of(
        run->stages, [&](const StageRecord& one) { return one.worker == worker.id; });
    if (run->record.state == RunState::kRecovering && has_place) {
      // The next epoch begins with others, as soon as they have its files.
      if (!shards_.book().IsCheckingToResume(run->record.id)) SaveFiles(worker);
      return;
    }
    if (stage != nullptr) {
      if (run->record.state == RunState::kRunning) Stop(*run, *stage, worker);
      return;
    }
    worker.held.reset();
    ledger_.Changed(*run);
  }
  if (worker.held || !shards_.book().AskedOf(worker.id).empty() || SaveFiles(worker)) return;
  LetGo(worker);
}

void Departures::Stop(Run& run, const StageRecord& stage, Worker& worker) {
  const bool all_hear = std::ranges::all_of(
      run.stages, [](const StageRecord& one) { return one.IsAttached() && one.HasStarted(); });
  // A run that is about to end does so.
  if (!all_hear || failures_.AwaitsCause(run) || worker.may_leave ||
      run.record.step + 1 >= run.record.spec.train.steps) {
    return;
  }
  const Crew crew = crews_.For(run);
  const Worker* next = stage.place < crew.size() ? crew[stage.place] : nullptr;
  const absl::Duration left = *worker.leaves_at - ledger_.now();
  const absl::Duration needed = TimeToMove(run, stage, worker, next);
  const uint64_t elsewhere = NewestElsewhere(run);
  const std::string state = FormatBytes(StateBytesOf(run, stage));
  if (needed > left && elsewhere > 0) {
    ledger_.Log(&run, "worker",
                "{} is leaving, and to end the step and send the stage's state ({}) takes about "
                "{}, more than the {} that are left: the run goes on from the newest copies, of "
                "step {}",
                ledger_.Label(stage), state, longhaul::FormatDuration(needed),
                longhaul::FormatDuration(left), elsewhere);
    LetGo(worker);
    return;
  }
  run.record.resize_asked = true;
  const std::string who = !IsWhole(crew)    ? "as soon as a worker is free"
                          : next == nullptr ? "with the other replicas"
                                            : fmt::format("with worker {}", ledger_.Label(*next));
  moves_.Move(run, Trigger::kEndAsked, "",
              fmt::format("{} is leaving: the run stops after the step under way, with a "
                          "checkpoint, and goes on from there {}{}",
                          ledger_.Label(stage), who,
                          needed > left ? fmt::format("; there may not be time enough to send the "
                                                      "stage's state ({}), of which there is no "
                                                      "other copy",
                                                      state)
                                        : std::string()));
}

uint64_t Departures::StateBytesOf(const Run& run, const StageRecord& stage) const {
  const Assignment& assignment = run.assignment();
  return StateBytes(run.record.spec, assignment.data.vocabulary, assignment.cells[stage.place]);
}

absl::Duration Departures::TimeToMove(const Run& run, const StageRecord& stage, const Worker& from,
                                      const Worker* to) const {
  const std::deque<v1::StepRecord>& recent = steps_.Recent(run);
  const double step =
      recent.empty() ? run.record.plan->prediction.step_seconds : recent.back().seconds();
  const double rate = shards_.MoveBitsPerSecond(run, from, to);
  const double bytes = static_cast<double>(StateBytesOf(run, stage));
  const double seconds = step + (rate > 0 ? 8 * bytes / rate : 0);
  return kMoveSlack + absl::Seconds(std::clamp(seconds, 0.0, 1e6));
}

uint64_t Departures::NewestElsewhere(const Run& run) const {
  const auto stays = [this](const v1::ShardHolder& holder) {
    if (!holder.problem().empty()) return false;
    if (holder.worker_id().empty() || IsFolder(holder.worker_id())) return true;
    const Worker* worker = ledger_.FindWorker(WorkerId(holder.worker_id()));
    return worker != nullptr && worker->session && !worker->leaves_at;
  };
  const auto& all = run.record.checkpoints;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const bool whole = std::ranges::all_of(it->files(), [&](const v1::CheckpointFile& file) {
      return std::ranges::any_of(file.holders(), stays);
    });
    if (whole) return it->step();
  }
  return 0;
}

bool Departures::SaveFiles(const Worker& worker) {
  bool under_way = false;
  for (Run* run : ledger_.Active()) {
    const v1::CheckpointManifest* newest = NewestWhole(run->record);
    if (newest == nullptr || NewestElsewhere(*run) >= newest->step()) continue;
    const bool asked = !saved_[worker.id].insert({run->record.id, newest->step()}).second;
    if (!asked) copies_.SaveFrom(*run, *newest, worker);
    const auto checks = shards_.book().AskedOf(worker.id);
    under_way = under_way || std::ranges::any_of(checks, [&](uint64_t id) {
                  const ShardCheck* check = shards_.book().Find(id);
                  return check->run == run->record.id;
                });
  }
  return under_way;
}

void Departures::LetGo(Worker& worker) {
  if (std::exchange(worker.may_leave, true)) return;
  v1::WorkerCommand command;
  command.mutable_may_leave();
  ledger_.Send(worker, std::move(command));
}

}  // namespace longhaul::coordinator
