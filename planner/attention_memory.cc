#include "planner/attention_memory.h"

#include <algorithm>

#include "run/model/attention_chunks.h"
#include "run/model/family.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kFloatBytes = 4, kHalfBytes = 2;

// True if fused kernels compute attention over anything but whole rows. Otherwise it has masks
// (worker/stage/model/attention.h).
bool HasFusedAttention(const RunSpec& spec, bool on_gpu) {
  return on_gpu && spec.train.dtype == ComputeDtype::kBf16 && spec.model.attention_cap == 0 &&
         model::HasFusedKernel(spec.model.HeadChannels());
}

}  // namespace

uint64_t RepeatedKeysAndValues(const RunSpec& spec) {
  const uint32_t slices = spec.pipeline.SlicesNow();
  const bool windows = spec.model.window > 0 && spec.model.window < spec.model.context;
  const bool plain = slices == 1 && !spec.data.mask_documents && !windows;
  const bool shares = HasFusedAttention(spec, /*on_gpu=*/true) || spec.model.attention_cap > 0 ||
                      (plain && spec.train.dtype == ComputeDtype::kBf16);
  if (shares || spec.model.kv_heads == 0) return 0;  // 0: a family whose heads share none
  // A slice repeats those of all earlier ones, too.
  return (slices + 1) * uint64_t{spec.model.QueryChannels() - spec.model.KvChannels()};
}

uint64_t PastBytes(const RunSpec& spec, uint64_t tokens, bool on_gpu) {
  const uint32_t slices = spec.pipeline.SlicesNow();
  if (slices == 1) return 0;
  const uint64_t channels = model::FamilyOf(spec.model).kv_channels(spec.model);
  const uint64_t of_all =
      2 * tokens * channels * (spec.train.dtype == ComputeDtype::kBf16 ? kHalfBytes : kFloatBytes);
  const uint64_t of_earlier = of_all - of_all / slices;
  const uint64_t recorded = on_gpu ? of_earlier : 0;  // their gradients, or their copies
  if (spec.pipeline.recompute != Recompute::kNone) return of_all + recorded;
  if (on_gpu && RepeatedKeysAndValues(spec) > 0) return 2 * recorded;
  return of_all * (slices + 1) / 2 - of_all / slices + 2 * recorded;
}

uint64_t ReferencePastBytes(const RunSpec& spec, uint64_t tokens) {
  const uint32_t slices = spec.pipeline.SlicesNow();
  if (!spec.train.dpo || slices == 1) return 0;
  const uint64_t of_all = 2 * tokens * model::FamilyOf(spec.model).kv_channels(spec.model) *
                          (spec.train.dtype == ComputeDtype::kBf16 ? kHalfBytes : kFloatBytes);
  return of_all - of_all / slices;
}

uint64_t MaskBytes(const RunSpec& spec, bool on_gpu) {
  const ModelSpec& model = spec.model;
  if (HasFusedAttention(spec, on_gpu) || model.attention_cap > 0) return 0;
  const bool windows = model.window > 0 && model.window < model.context;
  const bool masked = spec.pipeline.SlicesNow() > 1 || spec.data.mask_documents;
  const bool all_windowed = windows && model.window_from == 0 && model.full_every == 0;
  const uint64_t kinds = (windows ? 1 : 0) + (masked && !all_windowed ? 1 : 0);
  const uint64_t rows = spec.data.mask_documents ? spec.train.microbatch_size : 1;
  const uint64_t bytes = spec.train.dtype == ComputeDtype::kBf16 ? kHalfBytes : kFloatBytes;
  return kinds * rows * model.context * model.context * bytes;
}

uint64_t JoinedChunks(const RunSpec& spec, bool on_gpu) {
  const ModelSpec& model = spec.model;
  if (HasFusedAttention(spec, on_gpu) || model.attention_cap > 0) return 0;
  if (2 * uint64_t{model.window} >= model.context) return 0;
  uint64_t windowed = 0;
  for (uint32_t layer = 0; layer < model.layers; ++layer)
    windowed += model.HasWindow(layer) ? 1 : 0;
  return model.QueryChannels() * windowed / std::max(model.layers, 1u);
}

uint64_t ScoreBytes(const RunSpec& spec) {
  if (spec.model.attention_cap == 0) return 0;
  constexpr uint64_t kCopies = 14;
  const uint64_t of_query = uint64_t{spec.train.microbatch_size} * spec.model.heads /
                            spec.group.tensor * spec.model.context;
  return kCopies * kFloatBytes * of_query *
         model::QueriesOfChunk(spec.model.context, of_query, model::kScoresOfChunk);
}

uint64_t QueryGradientBytes(const RunSpec& spec) {
  if (!spec.data.mask_documents || !HasFusedAttention(spec, /*on_gpu=*/true)) return 0;
  const uint64_t documents =
      model::MostDocumentsRecorded(spec.train.microbatch_size, spec.model.context);
  return model::kTileOfDocument * documents * spec.model.QueryChannels() / spec.group.tensor *
         kFloatBytes;
}

}  // namespace longhaul::coordinator
