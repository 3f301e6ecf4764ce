// A run adopts its plan, and the checkpoint from which it goes on.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "coordinator/state/ledger/epochs.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/replica_counts.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/life/tuning.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/workers/secrets.h"
#include "planner/codec_choice.h"
#include "planner/replicas.h"

namespace longhaul::coordinator {

bool Planning::SettleOnCheckpoint(Run& run, Draft& draft) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, draft.resume_step);
  const std::string damage = DamageOf(*manifest);
  if (const v1::CheckpointFile* file = UnreachableFile(ledger_, *manifest);
      damage.empty() && file) {
    Interrupt(run.record.id,
              fmt::format("{}, which is not connected, holds {} of the checkpoint of step {}",
                          HoldersText(*file), file->name(), manifest->step()));
    return false;
  }
  if (damage.empty()) return true;
  const std::string sentence =
      fmt::format("the checkpoint of step {} is damaged ({})", manifest->step(), damage);
  const v1::CheckpointManifest* older = NewestWhole(run.record, manifest->step());
  if (older == nullptr) {
    Fail(run.record.id,
         sentence + ", and there is no older one that is whole" + HowToResume(run.record));
    return false;
  }
  if (run.resume_exactly) {  // what the user asked for cannot be had
    Fail(run.record.id, sentence + HowToResume(run.record));
    return false;
  }
  ledger_.Log(&run, "checkpoint",
              "{}; goes on from that of step {}: steps {} to {} are trained again", sentence,
              older->step(), older->step() + 1, manifest->step());
  draft.resume_step = older->step();
  run.record.step = older->step();
  ledger_.Store(run);
  shards_.Check(run, *older, ShardCheck::Purpose::kResume);
  return !shards_.book().IsCheckingToResume(run.record.id) && SettleOnCheckpoint(run, draft);
}

bool Planning::ShardsAreInPlace(const Run& run, const Plan& plan) {
  const uint64_t step = plan.assignment.start_step;
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, step);
  LH_CHECK(manifest != nullptr, "the plan goes on from a checkpoint that is not there");
  const std::vector<ShardMove> moves = MovesFor(*manifest, plan.assignment.cells);
  shards_.BeginMoves(run, step, moves);
  return moves.empty();
}

void Planning::Adopt(Run& run, const Draft& draft, Plan plan) {
  if (plan.assignment.start_step > 0) shards_.DropAfter(run, plan.assignment.start_step);
  for (const Draft::Candidate& candidate : draft.workers) {
    const bool is_taken = std::ranges::any_of(
        plan.assignment.cells, [&](const Cell& cell) { return cell.worker == candidate.id; });
    if (!is_taken) ledger_.FindWorker(candidate.id)->held.reset();
  }
  plan.assignment.microbatches_before = MicrobatchesAt(run.record, plan.assignment.start_step);
  // A worker may have named this epoch, or a higher one, while the plan was made: another
  // coordinator began it.
  if (run.epoch_seen >= run.record.epoch) run.record.epoch = NextEpoch(run);
  plan.assignment.epoch = run.record.epoch;
  SealAssignment(ledger_.options().lead, &plan.assignment);
  run.record.data = draft.data;
  run.stages = StagesOf(plan.assignment);
  for (StageRecord& stage : run.stages) stage.MovePresence(StageTrigger::kSessionBegan);
  SettleGroup(run, plan.assignment.cells.front().group);
  SettleReplicas(run, ReplicasOf(plan.assignment));
  SettleCodecs(run, plan.assignment);
  if (std::optional<uint32_t>& slices = run.record.spec.pipeline.slices; !slices) {
    slices = plan.assignment.slices;
    ledger_.Log(&run, "note", "pipeline.slices: the plan chose {}", *slices);
  }
  const std::string explanation = plan.explanation;
  run.record.plan = std::move(plan);
  LogCutShort(ledger_, run, *run.record.plan);
  if (const auto* manifest = FindCheckpoint(run.record, run.assignment().start_step)) {
    LogReplicas(ledger_, run, ReplicasOf(*manifest), "");
  }
  moves_.Move(run, Trigger::kPlanMade, "", explanation);
}

void Planning::SettleGroup(Run& run, const Group& chosen) {
  GroupSpec& group = run.record.spec.group;
  if (!group.is_auto()) return;
  const auto note = [&](std::string_view key, uint32_t number) {
    ledger_.Log(&run, "note", "group.{}: the plan chose {}", key, number);
  };
  if (group.tensor_auto) note("tensor", chosen.tensor);
  if (group.expert_auto) note("expert", chosen.expert);
  group = group.Settled(chosen.tensor, chosen.expert);
}

void Planning::SettleReplicas(Run& run, uint32_t chosen) {
  RunSpec& spec = run.record.spec;
  if (!spec.replicas.count_auto) return;
  const ReplicasSpec before = spec.replicas;
  spec = spec.WithChosenReplicas(chosen);
  const bool forms_are_lost =
      spec.replicas.gradients != before.gradients || spec.replicas.parameters != before.parameters;
  ledger_.Log(&run, "note",
              "pipeline.replicas: the plan chose {}, so train.microbatches are {} of each{}",
              chosen, spec.train.microbatches,
              forms_are_lost ? "; one replica sends no gradients, so pipeline.gradients and "
                               "pipeline.parameters say nothing any more"
                             : "");
}

// Later plans keep the codecs, so that the losses of a run depend on the same ones.
void Planning::SettleCodecs(Run& run, const Assignment& assignment) {
  LinksSpec& links = run.record.spec.links;
  if (!links.HasAutoCodecs()) return;
  std::vector<std::vector<CodecPair>> chosen = CodecsOf(assignment);
  const bool none_before = links.chosen.empty();
  const bool are_kept = chosen.empty() || links.ChosenOf(0, chosen.front().size()) != nullptr;
  links.chosen = std::move(chosen);
  if (are_kept) return;
  ledger_.Log(&run, "note", "links: the plan chose codecs{}",
              none_before ? "" : " anew, because boundaries are others than before");
}

}  // namespace longhaul::coordinator
