#include "coordinator/planner/memory.h"

#include "coordinator/planner/planner.h"
#include "run/model/family.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kFloat = 4, kHalf = 2;
constexpr uint64_t kBytesPerParameter = 16, kSnapshotBytesPerParameter = 12;
constexpr uint64_t kBoundaryBuffers = 4;
constexpr uint64_t kLogitsAtWork = 2;
// Of a GPU's stage, whose passes are recorded.
constexpr uint64_t kCublasBytes = uint64_t{192} << 20;
constexpr uint64_t kBoundariesInPassing = 8;
constexpr uint64_t kSegmentBytes = uint64_t{20} << 20;

// Parameters that are cast: those of matrix products. The norms among them hardly count.
uint64_t CastParameters(ModelSpec spec, uint32_t vocabulary, uint32_t layers, bool last) {
  spec.tied = false;  // the head is cast, whosever its values are
  return StageParameters(spec, vocabulary, layers, /*first=*/false, last);
}

uint64_t BytesOf(const model::Kept& kept, bool bf16) {
  return kept.full * kFloat + kept.half * (bf16 ? kHalf : kFloat);
}

}  // namespace

uint64_t StageParameters(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last) {
  const auto times = [&](model::Role role) -> uint64_t {
    switch (role) {
      case model::Role::kEmbedding:
        return first ? 1 : 0;
      case model::Role::kBlock:
        return layers;
      case model::Role::kHead:
        return last ? 1 : 0;
    }
    return 0;
  };
  uint64_t count = 0;
  for (const model::Parameter& parameter :
       model::FamilyOf(spec).parameters(spec, spec.VocabularyOver(vocabulary))) {
    count += times(parameter.role) * parameter.shape.elements();
  }
  return count;
}

StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu) {
  const bool bf16 = spec.train.dtype == ComputeDtype::kBf16;
  const uint64_t tokens = uint64_t{spec.train.microbatch_size} * spec.model.context;
  const uint64_t boundary = tokens * spec.model.hidden * kFloat;
  const model::Family& family = model::FamilyOf(spec.model);
  uint64_t kept = layers * tokens * BytesOf(family.kept_by_block(spec.model), bf16);
  const uint64_t logits =
      last ? tokens * uint64_t{spec.model.VocabularyOver(vocabulary)} * kFloat : 0;
  if (last) kept += tokens * BytesOf(family.kept_by_final_norm(spec.model), bf16) + logits;
  const uint64_t casts = bf16 ? CastParameters(spec.model, vocabulary, layers, last) * kHalf : 0;

  const uint64_t parameters = StageParameters(spec.model, vocabulary, layers, first, last);
  StageMemory memory;
  const uint64_t of_parameter = kBytesPerParameter + (on_gpu ? 0 : kSnapshotBytesPerParameter);
  memory.fixed = parameters * of_parameter + casts + kBoundaryBuffers * boundary +
                 kLogitsAtWork * logits + kProgramBytes;
  memory.per_flight = 2 * boundary;
  (spec.pipeline.recompute ? memory.fixed : memory.per_flight) += kept;
  if (!on_gpu) return memory;
  memory.fixed += kCublasBytes + kBoundariesInPassing * boundary;
  if (!spec.pipeline.recompute) {
    const uint64_t products = bf16 ? logits / kFloat * kHalf : 0;
    memory.per_flight += boundary + kSegmentBytes + logits + products;
  }
  return memory;
}

uint64_t StageMemoryBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                          bool last, uint32_t depth, bool on_gpu) {
  return MemoryOf(spec, vocabulary, layers, first, last, on_gpu).At(depth);
}

}  // namespace longhaul::coordinator
