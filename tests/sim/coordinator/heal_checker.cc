#include "tests/sim/coordinator/heal_checker.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/state/books/shard_files.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr absl::Duration kHealLookEvery = absl::Seconds(1);
// The longest way back: the coordinator notices silence, a stage's grace ends, a recovery in place
// waits for its worker and for stages to be ready, its pause grows, layers and links are measured
// anew.
constexpr absl::Duration kLongestWayBack = absl::Seconds(240);

// For a run that may go on with fewer replicas: until it knows that a worker is away, and until the
// files that it needs are where it needs them. Together shorter than runs wait for a worker that
// they miss (reattach_timeout), after which they are planned anew.
constexpr absl::Duration kLongestDetection = absl::Seconds(10);
constexpr absl::Duration kLongestWaitForFewer = absl::Seconds(15);

}  // namespace

void HealChecker::Look() {
  const MonoTime now = cluster_.world.timeline.now();
  if (now < look_at_ || !cluster_.leader().running()) return;
  look_at_ = now + kHealLookEvery;
  const MonoTime fault = cluster_.world.LastFault();
  for (const auto& [id, record] : cluster_.checkers.records()) {
    const auto [known, is_new] = training_.try_emplace(id);
    Training& training = known->second;
    LookForFewer(record, training);
    const uint64_t best_step = cluster_.checkers.best_step(id);
    if (best_step > training.best_step) {
      training.best_step = best_step;
      training.trained = training.since = now;
    }
    training.since = is_new ? now : std::max(training.since, fault);
    // The time counts from the end of the last excuse.
    if (!ExcuseOf(record).empty()) training.since = now;
    if (now - training.since < kLongestWayBack) continue;
    cluster_.world.Violate("{} has not trained for {} though nothing keeps it from that: {}",
                           id.value(), absl::FormatDuration(now - training.since),
                           cluster_.Describe());
    return;
  }
}

bool HealChecker::HasTrainedSince(const RunId& run, MonoTime when) const {
  const auto training = training_.find(run);
  return training != training_.end() && training->second.trained > when;
}

std::string HealChecker::ExcuseOf(const RunRecord& record) const {
  if (HasEnded(record.state)) return "it has ended";
  size_t free = 0;
  for (const v1::WorkerStatus& worker :
       cluster_.leader().views().Workers(cluster_.world.timeline.now())) {
    const bool is_free = worker.run_id().empty() || worker.run_id() == record.id.value();
    if (worker.connected() && is_free) ++free;
  }
  if (free < WorkersFor(record)) return "too few workers are free";
  return ExcuseByCheckpoints(record);
}

uint64_t HealChecker::WorkersFor(const RunRecord& record) {
  const bool goes_on = record.attempts.in_a_row > 0 && record.started_unix_ms != 0;
  const bool with_fewer = goes_on && record.spec.recovery.replicas == LostReplica::kContinue;
  return uint64_t{*record.spec.pipeline.stages} * (with_fewer ? 1 : record.ReplicasWanted());
}

void HealChecker::LookForFewer(const RunRecord& record, Training& training) {
  const MonoTime now = cluster_.world.timeline.now();
  const bool waits = record.state == RunState::kRecovering && record.attempts.in_a_row == 1 &&
                     record.spec.recovery.replicas == LostReplica::kContinue;
  const bool may_wait = !waits || now - LastFelt() < kLongestDetection || !ExcuseOf(record).empty();
  if (may_wait || record.epoch != training.waits_in) training.waits_since = now;
  training.waits_in = record.epoch;
  if (now - training.waits_since < kLongestWaitForFewer) return;
  cluster_.world.Violate("{} waits for {} though a whole replica could go on: {}",
                         record.id.value(), absl::FormatDuration(now - training.waits_since),
                         cluster_.Describe());
}

std::string HealChecker::ExcuseByCheckpoints(const RunRecord& record) const {
  if (record.checkpoints.empty()) return "";
  std::string excuse = "no checkpoint is whole";
  for (auto manifest = record.checkpoints.rbegin(); manifest != record.checkpoints.rend();
       ++manifest) {
    bool within_reach = true;
    for (const v1::CheckpointFile& file : manifest->files()) {
      bool here = false;
      for (const v1::ShardHolder& holder : file.holders()) {
        const std::string& id = holder.worker_id();
        const ShardName name{record.id.value(), manifest->step(), file.stage(), file.replica()};
        if (id.empty()) {
          here = here || cluster_.world.copies.contains(file.sha256());
        } else if (IsFolder(id)) {
          const auto object = cluster_.world.objects.find(id + file.name());
          here =
              here || (object != cluster_.world.objects.end() && object->second == file.sha256());
        } else if (!IsConnected(id)) {
          excuse = fmt::format("{}, which is away, has a shard of step {}", id, manifest->step());
        } else {
          here = here || cluster_.world.disks[id].Find(name) == file.sha256();
        }
      }
      within_reach = within_reach && here;
    }
    if (within_reach) return "";
    // Who asks for a run to go on is told whom it waits for, and may ask for an older one.
    if (HasEnded(record.state) || record.attempts.in_a_row == 0) return excuse;
  }
  return excuse;
}

MonoTime HealChecker::LastFelt() const {
  const World& world = cluster_.world;
  MonoTime last;
  for (const auto& [worker, when] : world.moved_at) last = std::max(last, when);
  for (const auto& [who, ends] : world.fault_of) {
    bool is_away = false;
    for (size_t w = 0; w < cluster_.workers.size(); ++w) {
      is_away |= WorkerName(w) == who && !cluster_.workers[w]->connected();
    }
    const auto began = world.fault_began.find(who);
    last = std::max(last, is_away && began != world.fault_began.end() ? began->second : ends);
  }
  return last;
}

bool HealChecker::IsConnected(const std::string& worker_id) const {
  return std::ranges::any_of(cluster_.workers, [&](const auto& worker) {
    return worker->connected() && worker->id() == worker_id;
  });
}

}  // namespace longhaul::coordinator::sim
