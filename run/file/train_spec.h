// What a run trains with: section "train" of a run file. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/words.h"

namespace longhaul {

// Type of matrix products.
enum class ComputeDtype : uint8_t {
  kFp32,
  kBf16,
  kAuto,  // bf16 if all workers of the run compute on GPUs, else fp32; a plan names the type
};
constexpr std::string_view ToString(ComputeDtype dtype) {
  return WordOf(dtype, {"fp32", "bf16", "auto"});
}

enum class OptimizerKind : uint8_t {
  kAdamW,
  kMuon,  // for the matrices of blocks; AdamW with the same rate for the rest
};
constexpr std::string_view ToString(OptimizerKind kind) {
  return WordOf(kind, {"adamw", "muon"});
}

enum class MomentDtype : uint8_t { kFp32, kBf16 };
constexpr std::string_view ToString(MomentDtype dtype) {
  return WordOf(dtype, {"fp32", "bf16"});
}

// Course of the learning rate after the warm-up.
enum class LrScheduleKind : uint8_t {
  kConstant,
  kCosine,  // half a cosine, from lr to final_ratio * lr at the last step
  kLinear,  // a line, from lr to final_ratio * lr at the last step
  kWsd,     // warm-up, stable, decay: lr, then a line to final_ratio * lr over the last steps
};
constexpr std::string_view ToString(LrScheduleKind kind) {
  return WordOf(kind, {"constant", "cosine", "linear", "wsd"});
}

// What happens to a step whose loss or gradient norm is not finite.
enum class OnNonfinite : uint8_t {
  kStop,  // the run fails
  kSkip,  // no stage updates anything in this step (see kMostSkippedInARow)
};
constexpr std::string_view ToString(OnNonfinite what) {
  return WordOf(what, {"stop", "skip"});
}

// The run fails when more steps than this are skipped in a row.
inline constexpr uint32_t kMostSkippedInARow = 10;

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // on matrices only
  double clip_norm = 1.0;     // global; 0 = no clipping
  double momentum = 0.95;     // Muon's
  // Type of the optimizer state between steps. Arithmetic and checkpoints are in fp32.
  MomentDtype moments = MomentDtype::kFp32;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

struct LrScheduleSpec {
  LrScheduleKind kind = LrScheduleKind::kCosine;
  uint64_t warmup = 0;       // steps
  double final_ratio = 0.1;  // of lr, at the last step
  double decay = 0.2;        // wsd: share of all steps
  // wsd: number of steps at the end that decay.
  uint64_t DecaySteps(uint64_t steps) const;
  friend bool operator==(const LrScheduleSpec&, const LrScheduleSpec&) = default;
};

// Maximum number of steps. A run that has train.epochs and no train.steps has this number until the
// CLI has counted its data.
inline constexpr uint64_t kMostSteps = 1'000'000'000;

// Training on preferences (direct preference optimization), "train.dpo". The loss of a pair of
// answers is -log sigmoid(beta * m), where m is how much more the adapters raise the
// log-probability of the chosen answer than that of the rejected one. The loss of a step is the
// mean over its pairs. The model without adapters is the reference.
struct DpoSpec {
  double beta = 0.1;
  // Share of pairs that are taken to be labelled the wrong way round; below 0.5.
  double label_smoothing = 0;
  friend bool operator==(const DpoSpec&, const DpoSpec&) = default;
};

struct TrainSpec {
  // Required, unless `epochs` is set; 0, only with model.from: the run only validates.
  uint64_t steps = 0;
  // Passes over the training data. The CLI makes `steps` of it where the run file has no steps;
  // until then these are kMostSteps. nullopt: the run file does not say.
  std::optional<double> epochs;
  uint32_t microbatches = 0;                 // required; per step, of each replica
  uint32_t microbatch_size = 1;              // sequences
  ComputeDtype dtype = ComputeDtype::kFp32;  // a run file without the key: auto
  uint64_t seed = 1;
  // GPUs use only algorithms that give the same bits each time, which costs some speed. CPUs always
  // do.
  bool deterministic = false;
  OptimizerSpec optimizer;
  LrScheduleSpec schedule;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  std::optional<DpoSpec> dpo;  // nullopt: the loss is the cross-entropy of tokens
  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

}  // namespace longhaul
