// One trip of all microbatches through the pipeline: a training step, or the validation after it.
#ifndef LONGHAUL_WORKER_PIPELINE_PASS_H_
#define LONGHAUL_WORKER_PIPELINE_PASS_H_

#include <compare>

#include "base/ids.h"

namespace longhaul::worker {

// Ordered as they run: the validation of step t comes after the training of t, before that of t
// + 1.
struct Pass {
  Step step{0};
  bool validation = false;
  friend auto operator<=>(const Pass&, const Pass&) = default;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_PASS_H_
