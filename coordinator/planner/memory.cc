#include "coordinator/planner/memory.h"

#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kFloat = 4, kHalf = 2;
constexpr uint64_t kBytesPerParameter = 28;
constexpr uint64_t kProgramBytes = uint64_t{256} << 20;
constexpr uint64_t kBoundaryBuffers = 4;

}  // namespace

uint64_t StageParameters(const ModelSpec& model, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last) {
  const uint64_t h = model.hidden;
  uint64_t count = layers * (12 * h * h + 13 * h);
  if (first) count += (uint64_t{vocabulary} + model.context) * h;
  if (last) count += 2 * h;
  if (last && !model.tied) count += uint64_t{vocabulary} * h;
  return count;
}

StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last) {
  const bool bf16 = spec.train.dtype == ComputeDtype::kBf16;
  const uint64_t h = spec.model.hidden;
  const uint64_t tokens = uint64_t{spec.train.microbatch_size} * spec.model.context;
  const uint64_t boundary = tokens * h * kFloat;
  const uint64_t block = tokens * h * (bf16 ? 4 * kFloat + 12 * kHalf : 16 * kFloat);
  uint64_t activations = layers * block;
  if (last) activations += tokens * (2 * h + 3 * uint64_t{vocabulary}) * kFloat;

  const uint64_t parameters = StageParameters(spec.model, vocabulary, layers, first, last);
  StageMemory memory;
  memory.fixed = parameters * (kBytesPerParameter + (bf16 ? kHalf : 0)) +
                 kBoundaryBuffers * boundary + kProgramBytes;
  memory.per_flight = 2 * boundary;
  (spec.pipeline.recompute ? memory.fixed : memory.per_flight) += activations;
  return memory;
}

uint64_t StageMemoryBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                          bool last, uint32_t depth) {
  const StageMemory memory = MemoryOf(spec, vocabulary, layers, first, last);
  return memory.fixed + depth * memory.per_flight;
}

}  // namespace longhaul::coordinator
