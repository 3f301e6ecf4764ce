// Which tokens a microbatch has: a pure function of the plan, so the first stage (inputs) and the
// last (targets) agree without talking, and a resumed run goes on exactly where it was.
//
// One thread at a time.
#ifndef LONGHAUL_WORKER_PIPELINE_BATCHES_H_
#define LONGHAUL_WORKER_PIPELINE_BATCHES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "run/file/run_spec.h"
#include "run/tokens/token_file.h"
#include "worker/pipeline/pass.h"

namespace longhaul::worker {

// Which windows of the training text the sequences of a microbatch are. The same on every stage.
struct SampleOrder {
  uint64_t seed = 0;
  uint64_t windows = 0;  // of the training text
  uint32_t microbatches = 0, microbatch_size = 0;

  uint64_t WindowOf(Step step, Microbatch microbatch, uint32_t row) const {
    const uint64_t global_microbatch = (step.value() - 1) * microbatches + microbatch.value();
    return TrainingWindowOf(seed, global_microbatch * microbatch_size + row, windows);
  }
};
inline SampleOrder SampleOrderOf(const RunSpec& spec, uint64_t windows) {
  return {spec.data.seed, windows, spec.train.microbatches, spec.train.microbatch_size};
}

class Batches {
 public:
  Batches(const RunSpec& spec, std::shared_ptr<const TokenFile> file);

  // microbatch_size x context ids each, valid until the next call.
  struct Tokens {
    std::span<const int32_t> inputs, targets;
  };
  Tokens Read(const Pass& pass, Microbatch microbatch);

 private:
  const RunSpec spec_;
  const std::shared_ptr<const TokenFile> file_;
  const SampleOrder order_;
  const uint64_t validation_windows_;
  std::vector<int32_t> inputs_, targets_;
};

// Microbatches of a validation pass: the run file's samples, in whole microbatches, at least one
// and at most what the validation text has. 0 when validation is off.
uint32_t ValidationMicrobatches(const RunSpec& spec, uint64_t validation_tokens);

// Whether validation follows the training of `step`: every `validation.every` steps and after the
// last.
bool ValidatesAfter(const RunSpec& spec, Step step);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_BATCHES_H_
