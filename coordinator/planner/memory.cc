#include "coordinator/planner/memory.h"

#include "coordinator/planner/planner.h"

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

uint64_t KeyChannels(const ModelSpec& model) {
  return uint64_t{model.hidden} / model.heads * model.kv_heads;
}

uint64_t BlockParameters(const ModelSpec& model) {
  const uint64_t h = model.hidden;
  if (model.family == ModelFamily::kGpt) return 12 * h * h + 13 * h;
  const uint64_t k = KeyChannels(model);
  return 2 * h * h + 2 * h * k + 3 * h * model.intermediate + 2 * h +
         (model.qkv_bias ? h + 2 * k : 0);
}

// That autograd keeps of one token: `full` in fp32, `half` as the products compute.
struct KeptValues {
  uint64_t full = 0, half = 0;
};

KeptValues KeptByBlock(const ModelSpec& model) {
  const uint64_t h = model.hidden;
  if (model.family == ModelFamily::kGpt) return {2 * h, 14 * h};
  return {4 * h, 4 * h + 2 * KeyChannels(model) + 4 * uint64_t{model.intermediate}};
}

// Parameters that are cast: those of matrix products. The norms among them hardly count.
uint64_t CastParameters(ModelSpec model, uint32_t vocabulary, uint32_t layers, bool last) {
  model.tied = false;  // the head is cast, whosever its values are
  return StageParameters(model, vocabulary, layers, /*first=*/false, last);
}

uint64_t KeptByFinalNorm(const ModelSpec& model) {
  return (model.family == ModelFamily::kGpt ? 2 : 3) * uint64_t{model.hidden};
}

}  // namespace

uint64_t StageParameters(const ModelSpec& model, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last) {
  const bool gpt = model.family == ModelFamily::kGpt;
  const uint64_t h = model.hidden;
  const uint64_t rows = model.VocabularyOver(vocabulary);
  uint64_t count = layers * BlockParameters(model);
  if (first) count += (rows + (gpt ? model.context : 0)) * h;
  if (last) count += (gpt ? 2 : 1) * h;
  if (last && !model.tied) count += rows * h;
  return count;
}

StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu) {
  const bool bf16 = spec.train.dtype == ComputeDtype::kBf16;
  const uint64_t tokens = uint64_t{spec.train.microbatch_size} * spec.model.context;
  const uint64_t boundary = tokens * spec.model.hidden * kFloat;
  const KeptValues block = KeptByBlock(spec.model);
  uint64_t kept = layers * tokens * (block.full * kFloat + block.half * (bf16 ? kHalf : kFloat));
  const uint64_t logits =
      last ? tokens * uint64_t{spec.model.VocabularyOver(vocabulary)} * kFloat : 0;
  if (last) kept += tokens * KeptByFinalNorm(spec.model) * kFloat + logits;
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
