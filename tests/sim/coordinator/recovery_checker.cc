#include "tests/sim/coordinator/recovery_checker.h"

#include <algorithm>
#include <utility>

namespace longhaul::coordinator::sim {
namespace {

// A stage trains on while so many of its checkpoints are being written.
constexpr uint64_t kWritesAtOnce = 2;

// From the third attempt in a row on, they come ever slower.
absl::Duration LeastPause(uint32_t attempt) {
  if (attempt < 3) return absl::ZeroDuration();
  return absl::Seconds(1) * (1 << std::min(attempt - 3, 4U));
}

}  // namespace

bool HoldsStages(RunState state) {
  return state == RunState::kPreparing || state == RunState::kRunning ||
         state == RunState::kFinishing;
}

void RecoveryChecker::Joined(SessionId session, const v1::Hello& hello) {
  sessions_[session] = hello.worker_id();
  connected_at_[hello.worker_id()] = world_->timeline.now();
  newest_[hello.worker_id()] = session;
}

void RecoveryChecker::Left(SessionId session) {
  const auto left = sessions_.extract(session);
  if (left.empty() || newest_[left.mapped()] != session) return;
  connected_at_.erase(left.mapped());
}

void RecoveryChecker::Restarted() {
  sessions_.clear();
  connected_at_.clear();
  newest_.clear();
  for (auto& [id, tries] : tries_) tries.first = true;  // what was being planned is planned again
}

uint64_t RecoveryChecker::best_step(const RunId& run) const {
  const auto best = best_step_.find(run);
  return best == best_step_.end() ? 0 : best->second;
}

void RecoveryChecker::Stored(const RunRecord& before, const RunRecord& record, bool resumed) {
  Tries& tries = tries_[record.id];
  if (HoldsStages(before.state) && !HoldsStages(record.state)) {
    tries.interrupted = world_->timeline.now();
  }
  if (resumed) {
    tries = {.interrupted = world_->timeline.now()};
  }
  // What is begun for another number of replicas is no attempt.
  if (before.resize_asked && !record.resize_asked) tries.first = true;
  if (record.epoch != before.epoch) CountEpoch(tries, before, record);
  const bool begins = record.state == RunState::kPreparing &&
                      (before.state != RunState::kPreparing || before.epoch != record.epoch);
  if (begins) CheckStart(tries, before, record);
}

void RecoveryChecker::CountEpoch(Tries& tries, const RunRecord& before, const RunRecord& record) {
  if (std::exchange(tries.first, false)) return;
  if (tries.finished > tries.best_step) {
    tries.best_step = tries.finished;
    tries.in_a_row = 0;
  }
  tries.finished = 0;
  ++tries.in_a_row;
  if (tries.in_a_row > record.spec.recovery.attempts) {
    world_->Violate("{} has begun again {} times without a new step and may {} times",
                    record.id.value(), tries.in_a_row, record.spec.recovery.attempts);
  }
  const absl::Duration pause = world_->timeline.now() - tries.interrupted;
  if (before.state == RunState::kRecovering && pause < LeastPause(tries.in_a_row)) {
    world_->Violate("{} begins for the {}th time in a row {} after it was interrupted",
                    record.id.value(), tries.in_a_row, absl::FormatDuration(pause));
  }
}

void RecoveryChecker::CheckStart(const Tries& tries, const RunRecord& before,
                                 const RunRecord& record) {
  const uint64_t start_step = record.plan->assignment.start_step;
  for (const v1::CheckpointManifest& manifest : before.checkpoints) {
    if (manifest.step() <= start_step) continue;
    const bool within_reach = std::ranges::all_of(manifest.files(), [&](const auto& file) {
      return std::ranges::any_of(file.holders(), [&](const v1::ShardHolder& holder) {
        if (!holder.problem().empty()) return false;
        const auto connected = connected_at_.find(holder.worker_id());
        const ShardName name{record.id.value(), manifest.step(), file.stage(), file.replica()};
        return connected != connected_at_.end() && connected->second <= tries.interrupted &&
               world_->disks[holder.worker_id()].Find(name) == file.sha256();
      });
    });
    if (!within_reach) continue;
    world_->Violate("{}@{} goes back to step {} though all have the shards of step {}",
                    record.id.value(), record.epoch.value(), start_step, manifest.step());
  }
}

void RecoveryChecker::Finished(const RunId& run, uint64_t step) {
  uint64_t& best = best_step_[run];
  best = std::max(best, step);
  Tries& tries = tries_[run];
  tries.finished = std::max(tries.finished, step);
}

void RecoveryChecker::CheckCheckpoints(const RunRecord& record, const v1::StepRecord& step) const {
  if (step.epoch() != record.epoch.value()) return;
  const uint64_t every = record.spec.checkpoint.every;
  const uint64_t start_step = record.plan ? record.plan->assignment.start_step : 0;
  if (step.step() < start_step + (kWritesAtOnce + 1) * every) return;
  const uint64_t newest = record.checkpoints.empty() ? 0 : record.checkpoints.back().step();
  const uint64_t expected = (step.step() / every - kWritesAtOnce) * every;
  if (newest >= expected) return;
  world_->Violate("{}@{} has finished step {}, and its newest checkpoint is of step {}",
                  record.id.value(), record.epoch.value(), step.step(), newest);
}

}  // namespace longhaul::coordinator::sim
