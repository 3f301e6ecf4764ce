// A training loop without stages and queues: the whole model in one autograd graph, one microbatch
// after the other, on the CPU. A pipelined run with lossless codecs must give the same numbers, bit
// for bit.
//
// The loop uses the worker's code for initial parameters and the sample order, which have tests of
// their own. It does not use the worker's code of the model, the optimizer and the executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/file/run_spec.h"

namespace longhaul::testing {

struct ReferenceValidation {
  uint64_t step = 0;  // the step after which the validation ran
  double loss = 0;
};

struct ReferenceRun {
  // For each step, the mean loss of its microbatches. The losses are added as doubles, in order.
  std::vector<double> losses;
  // For each step, the squared norm of the whole gradient before clipping.
  std::vector<double> squared_gradient_norms;
  // Validations after every spec.validation.every steps, and after the run's last step. Empty if
  // spec.validation.every is 0, or if the validation text is shorter than the model's context.
  std::vector<ReferenceValidation> validations;
};

// Trains steps 1 to `steps` on the tokens of the file `token_file`, with
// spec.pipeline.threads_per_stage threads. microbatches[i] is the number of microbatches of step
// i + 1; later steps use the last element. Empty: spec.train.microbatches for every step.
// kInvalidArgument: the token file is too short for one sample. Other errors: the token file is
// unreadable or damaged, or PyTorch threw.
StatusOr<ReferenceRun> RunReference(const RunSpec& spec, const std::string& token_file,
                                    uint64_t steps, const std::vector<uint32_t>& microbatches = {});

// As RunReference, but returns only the losses.
StatusOr<std::vector<double>> ReferenceLosses(const RunSpec& spec, const std::string& token_file,
                                              uint64_t steps,
                                              const std::vector<uint32_t>& microbatches = {});

}  // namespace longhaul::testing
