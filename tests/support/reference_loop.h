// The training loop that a pipelined run must equal bit for bit when nothing on its links is lossy:
// the whole model in one graph, one microbatch after the other, no stages, no queues.
//
// It shares with the worker the initial parameters, the optimizer and the sample order (each tested
// on its own), but neither the model's code nor the executor's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/file/run_spec.h"

namespace longhaul::testing {

struct ReferenceValidation {
  uint64_t step = 0;
  double loss = 0;
};

struct ReferenceRun {
  // One a step: the mean of the microbatches' losses, summed in double in their order.
  std::vector<double> losses;
  std::vector<double> squared_gradient_norms;
  // After every `validation.every` steps, if not 0, and after the run's last.
  std::vector<ReferenceValidation> validations;
};

// Steps 1..`steps` of the run on the tokens of `token_file`, with pipeline.threads_per_stage
// threads. `microbatches`: of each step, the last one of all that follow; empty: the run's.
StatusOr<ReferenceRun> RunReference(const RunSpec& spec, const std::string& token_file,
                                    uint64_t steps, const std::vector<uint32_t>& microbatches = {});

// The losses alone.
StatusOr<std::vector<double>> ReferenceLosses(const RunSpec& spec, const std::string& token_file,
                                              uint64_t steps,
                                              const std::vector<uint32_t>& microbatches = {});

}  // namespace longhaul::testing
