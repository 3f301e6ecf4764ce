// A pass: one trip of all microbatches through the pipeline, for a training step, a validation or
// the next token of sampled texts.
#pragma once

#include <compare>
#include <cstdint>

#include "base/ids.h"

namespace longhaul::worker {

enum class PassKind : uint8_t {
  kTraining,
  kValidation,       // through the links' codecs
  kCleanValidation,  // with boundaries in fp32
  kSampling,         // the same; one new token of each text
};

// Passes are ordered by time. The validations of step t run after the training of step t and before
// the training of step t + 1; samples follow these validations. The validations of step 0 run
// before all training.
struct Pass {
  Step step{0};
  PassKind kind = PassKind::kTraining;
  uint32_t number = 0;  // of a sampling pass among those after its step
  bool trains() const { return kind == PassKind::kTraining; }
  bool samples() const { return kind == PassKind::kSampling; }
  // True if codecs with state or loss have no part in it, where the run has such codecs.
  bool is_clean() const { return kind == PassKind::kCleanValidation || samples(); }
  friend auto operator<=>(const Pass&, const Pass&) = default;
};

}  // namespace longhaul::worker
