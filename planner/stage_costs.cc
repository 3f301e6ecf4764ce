#include "planner/stage_costs.h"

#include <algorithm>

#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// The sum over the stage's blocks, and over embedding and head where it has them.
double OfParts(const StageCosts::Stage& stage, double embedding, double block, double head) {
  return stage.layers * block + (stage.roles.embedding ? embedding : 0) +
         (stage.roles.head ? head : 0);
}

}  // namespace

const v1::GroupTimes* TimesOfGroup(const CandidateWorker& worker, const GroupSpec& wanted) {
  for (const v1::GroupTimes& group : worker.times.groups()) {
    if (wanted.tensor > 1 && group.tensor() == wanted.tensor &&
        std::max(group.expert(), 1u) == wanted.expert) {
      return &group;
    }
  }
  return nullptr;
}

int StageCosts::Ends(const Stage& stage) const {
  const bool block_by_block = spec_.pipeline.recompute == Recompute::kBlocks;
  return (block_by_block ? static_cast<int>(stage.layers) : 1) - (stage.roles.embedding ? 1 : 0) -
         (stage.roles.head ? 1 : 0);
}

double StageCosts::Forward(const Stage& stage) const {
  if (const v1::GroupTimes* group = TimesOfGroup(stage.worker, spec_.group)) {
    const double parts = OfParts(stage, group->embedding().forward(), group->block().forward(),
                                 group->head().forward());
    return std::max(parts + Ends(stage) * group->ends().forward(), 0.0);
  }
  const v1::LayerTimes& times = stage.worker.times;
  return OfParts(stage, times.embedding_forward(), times.block_forward(), times.head_forward());
}

double StageCosts::Backward(const Stage& stage) const {
  if (const v1::GroupTimes* group = TimesOfGroup(stage.worker, spec_.group)) {
    const double parts = OfParts(stage, group->embedding().backward(), group->block().backward(),
                                 group->head().backward());
    return std::max(parts + Ends(stage) * group->ends().backward(), 0.0);
  }
  const v1::LayerTimes& times = stage.worker.times;
  return OfParts(stage, times.embedding_backward(), times.block_backward(), times.head_backward());
}

std::optional<GroupEstimate> StageCosts::EstimateOfGroup(const Stage& stage) const {
  const v1::GroupTimes* const group = TimesOfGroup(stage.worker, spec_.group);
  // Nobody knows what sharing the stage cost where a replay was measured.
  if (group == nullptr || spec_.replay) return std::nullopt;
  GroupEstimate estimate{.forward_collective = group->forward_collective(),
                         .backward_collective = group->backward_collective(),
                         .sent = FromProto(group->block().sent()) * stage.layers};
  if (stage.roles.embedding) estimate.sent = estimate.sent + FromProto(group->embedding().sent());
  if (stage.roles.head) estimate.sent = estimate.sent + FromProto(group->head().sent());
  const int ends = Ends(stage);
  const CollectiveBytes of_ends = FromProto(group->ends().sent());
  estimate.sent =
      ends < 0 ? estimate.sent - of_ends : estimate.sent + of_ends * static_cast<uint64_t>(ends);
  if (group->block().has_collective_seconds()) {
    const double parts =
        OfParts(stage, group->embedding().collective_seconds(), group->block().collective_seconds(),
                group->head().collective_seconds());
    estimate.collective_seconds = std::max(parts + ends * group->ends().collective_seconds(), 0.0);
  }
  const v1::LayerTimes& times = stage.worker.times;
  estimate.even_share_seconds =
      OfParts(stage, times.embedding_forward() + times.embedding_backward(),
              times.block_forward() + times.block_backward(),
              times.head_forward() + times.head_backward()) /
      group->tensor();
  return estimate;
}

// Replicas share the optimizer step: each steps its own shard.
double StageCosts::Optimizer(const Stage& stage) const {
  const uint32_t shared_by = spec_.replicas.trains_apart() ? 1 : spec_.replicas.count;
  if (spec_.replay) {
    return absl::ToDoubleSeconds(spec_.replay->optimizer * stage.layers / spec_.model.layers) /
           shared_by;
  }
  const v1::GroupTimes* const group = TimesOfGroup(stage.worker, spec_.group);
  return static_cast<double>(SizeOf(stage).parameters) / shared_by *
         (group != nullptr ? group->optimizer_seconds_per_parameter()
                           : stage.worker.times.optimizer_seconds_per_parameter());
}

const StageCosts::Size& StageCosts::SizeOf(const Stage& stage) const {
  const bool first = stage.roles.embedding, last = stage.roles.head;
  const bool on_gpu = stage.worker.on_gpu;
  const auto [size, is_new] = sizes_.try_emplace({stage.layers, first, last, on_gpu});
  if (is_new) {
    size->second = {
        .memory = MemoryOf(spec_, vocabulary_, stage.layers, first, last, on_gpu),
        .parameters = StageParameters(spec_.model, vocabulary_, stage.layers, first, last)};
  }
  return size->second;
}

uint32_t StageCosts::LeastDepth(uint32_t stages_from_here) const {
  const uint32_t all = spec_.train.microbatches;
  return std::min(all, spec_.pipeline.depth.value_or(
                           UsualDepth(spec_.pipeline.schedule, stages_from_here, all)));
}

StageCosts::Need StageCosts::OfDevice(const Stage& stage, uint32_t depth) const {
  return {Memory(stage).At(depth), stage.worker.memory_bytes};
}

StageCosts::Need StageCosts::OfHost(const Stage& stage) const {
  return {Memory(stage).host, stage.worker.host_memory_bytes};
}

uint32_t StageCosts::DepthOf(const Stage& stage, uint32_t least) const {
  const uint64_t available = stage.worker.memory_bytes;
  if (!TraitsOf(spec_.pipeline.schedule).searches_depth() || spec_.pipeline.depth) return least;
  if (available == 0) return spec_.train.microbatches;
  const StageMemory& memory = Memory(stage);
  if (available <= memory.fixed) return least;
  const uint64_t fitting = (available - memory.fixed) / std::max<uint64_t>(memory.per_flight, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(fitting, least, spec_.train.microbatches));
}

}  // namespace longhaul::coordinator
