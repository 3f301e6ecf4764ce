// A pass: one trip of all microbatches through the pipeline, for a training step or a validation.
#pragma once

#include <compare>
#include <cstdint>

#include "base/ids.h"

namespace longhaul::worker {

enum class PassKind : uint8_t {
  kTraining,
  kValidation,       // through the links' codecs
  kCleanValidation,  // with boundaries in fp32
};

// Passes are ordered by time. The validations of step t run after the training of step t and before
// the training of step t + 1. The validations of step 0 run before all training.
struct Pass {
  Step step{0};
  PassKind kind = PassKind::kTraining;
  bool trains() const { return kind == PassKind::kTraining; }
  friend auto operator<=>(const Pass&, const Pass&) = default;
};

}  // namespace longhaul::worker
