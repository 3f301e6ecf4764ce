#include "worker/pipeline/batches.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace longhaul::worker {

Batches::Batches(const RunSpec& spec, std::shared_ptr<const TokenFile> file)
    : spec_(spec),
      file_(std::move(file)),
      order_(SampleOrderOf(spec, file_->TrainingWindows(spec.model.context))),
      validation_windows_(file_->ValidationWindows(spec.model.context)),
      inputs_(size_t{spec.train.microbatch_size} * spec.model.context),
      targets_(inputs_.size()) {
  LH_CHECK(order_.windows > 0, "the coordinator checks that the text is long enough");
}

Batches::Tokens Batches::Read(const Pass& pass, Microbatch microbatch) {
  const uint32_t context = spec_.model.context;
  const uint64_t rows = spec_.train.microbatch_size;
  for (uint64_t row = 0; row < rows; ++row) {
    const auto inputs = std::span(inputs_).subspan(row * context, context);
    const auto targets = std::span(targets_).subspan(row * context, context);
    if (pass.validation) {
      // Spread evenly over the validation text, the same ones every time.
      const uint64_t samples =
          rows * ValidationMicrobatches(spec_, file_->info().validation_tokens);
      LH_CHECK(samples > 0, "there is no validation pass without a sample");
      const uint64_t sample = microbatch.value() * rows + row;
      file_->ReadValidationWindow(sample * validation_windows_ / samples, context, inputs, targets);
    } else {
      const uint64_t window = order_.WindowOf(pass.step, microbatch, static_cast<uint32_t>(row));
      file_->ReadTrainingWindow(window, context, inputs, targets);
    }
  }
  return {inputs_, targets_};
}

uint32_t ValidationMicrobatches(const RunSpec& spec, uint64_t validation_tokens) {
  if (spec.validation.every == 0 || validation_tokens <= spec.model.context) return 0;
  const uint64_t windows = (validation_tokens - 1) / spec.model.context;
  const uint64_t samples = std::min<uint64_t>(spec.validation.samples, windows);
  return static_cast<uint32_t>(std::max<uint64_t>(1, samples / spec.train.microbatch_size));
}

bool ValidatesAfter(const RunSpec& spec, Step step) {
  return spec.validation.every > 0 &&
         (step.value() % spec.validation.every == 0 || step.value() == spec.train.steps);
}

}  // namespace longhaul::worker
