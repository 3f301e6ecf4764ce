#include "worker/pipeline/batches.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

namespace {

// Sequences that are looked at to see which chunks come next: those of the next steps, and some
// of those that follow.
constexpr uint64_t kStepsAhead = 3, kMostAhead = 4096, kSamplesAhead = 512;

}  // namespace

ReadSoFar ReadBefore(const Assignment& assignment, const RunSpec& spec) {
  const uint64_t step = assignment.start_step;
  return {
      .step = step,
      .microbatches = assignment.microbatches_before.value_or(step * spec.MicrobatchesPerStep())};
}

SampleOrder SampleOrderOf(const RunSpec& spec, const data::Mixture* mixture, uint64_t windows,
                          uint32_t replica, const ReadSoFar& before) {
  SampleOrder order{.windows = nullptr,
                    .microbatches = spec.train.microbatches,
                    .microbatch_size = spec.train.microbatch_size,
                    .replica = replica,
                    .replicas = spec.replicas.count,
                    .before = before};
  if (mixture == nullptr) {
    order.windows = data::ShuffledOrder(spec.data.seed, windows);
  } else {
    order.windows = data::MixedOrder(*mixture, spec.model.context, spec.validation.share,
                                     spec.data.seed, spec.data.memory_bytes);
  }
  return order;
}

Batches::Batches(const RunSpec& spec, std::shared_ptr<WindowSource> source,
                 const data::Mixture* mixture, uint32_t replica, const ReadSoFar& before)
    : spec_(spec),
      source_(std::move(source)),
      order_(SampleOrderOf(spec, mixture, source_->WindowsOf(Text::kTraining), replica, before)),
      validation_windows_(source_->WindowsOf(Text::kValidation)),
      inputs_(size_t{spec.train.microbatch_size} * spec.model.context),
      targets_(inputs_.size()) {
  LH_CHECK(order_.windows->windows() > 0, "the coordinator checks that the text is long enough");
  if (!spec.data.mask_documents || mixture == nullptr) return;
  end_token_ = mixture->sources.front().set.end_token;
  documents_.resize(inputs_.size());
}

uint32_t Batches::MicrobatchesOf(const Pass& pass) const {
  return pass.trains() ? spec_.train.microbatches
                       : ValidationMicrobatchesOf(spec_, validation_windows_);
}

uint64_t Batches::WindowOf(const Pass& pass, uint64_t microbatch, uint64_t row) const {
  if (pass.trains()) {
    return order_.WindowOf(pass.step, Microbatch(static_cast<uint32_t>(microbatch)),
                           static_cast<uint32_t>(row));
  }
  // Spread evenly over the validation text, the same ones every time.
  const uint64_t rows = spec_.train.microbatch_size;
  const uint64_t samples = rows * MicrobatchesOf(pass);
  LH_CHECK(samples > 0, "there is no validation pass without a sample");
  return (microbatch * rows + row) * validation_windows_ / samples;
}

StatusOr<Batches::Tokens> Batches::Read(const Pass& pass, Microbatch microbatch) {
  if (!pass_ || *pass_ != pass) {
    Expect(pass);
    if (spec_.data.masks || end_token_) LH_RETURN_IF_ERROR(Count(pass));
    pass_ = pass;
  }
  const uint32_t context = spec_.model.context;
  for (uint64_t row = 0; row < spec_.train.microbatch_size; ++row) {
    LH_RETURN_IF_ERROR(ReadRow(pass, WindowOf(pass, microbatch.value(), row),
                               std::span(inputs_).subspan(row * context, context),
                               std::span(targets_).subspan(row * context, context)));
  }
  if (end_token_) FindDocuments();
  return Tokens{inputs_, targets_, documents_, counted_};
}

Status Batches::ReadRow(const Pass& pass, uint64_t window, std::span<int32_t> inputs,
                        std::span<int32_t> targets) {
  LH_RETURN_IF_ERROR(
      source_->Read(pass.trains() ? Text::kTraining : Text::kValidation, window, inputs, targets));
  if (!end_token_) return absl::OkStatus();
  // What ends a document does not lead to the first token of the next one.
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<uint32_t>(inputs[i]) == *end_token_) targets[i] = kNoTarget;
  }
  return absl::OkStatus();
}

bool Batches::EndsDocument(std::span<const int32_t> row, size_t i) const {
  const auto is_end = [&](size_t at) { return static_cast<uint32_t>(row[at]) == *end_token_; };
  if (!end_token_ || !is_end(i)) return false;
  // Recorded passes compute for few documents. So filling belongs to the last answer of its row; it
  // has no targets.
  const bool fills = spec_.train.dpo && i + 1 < row.size() && is_end(i + 1);
  return !fills;
}

void Batches::FindDocuments() {
  const size_t context = spec_.model.context;
  for (size_t begin = 0; begin < inputs_.size(); begin += context) {
    const auto row = std::span(inputs_).subspan(begin, context);
    int32_t document = 0;
    for (size_t i = 0; i < context; ++i) {
      documents_[begin + i] = document;
      if (EndsDocument(row, i)) ++document;
    }
  }
}

uint64_t Batches::CountIn(std::span<const int32_t> inputs, std::span<const int32_t> targets) const {
  uint64_t answers[2] = {};  // targets of the pair at hand: of its chosen and its rejected answer
  uint64_t counted = 0, pairs = 0, document = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    counted += targets[i] >= 0;
    answers[document % 2] += targets[i] >= 0;
    if (!EndsDocument(inputs, i) && i + 1 < inputs.size()) continue;
    if (document % 2 == 1) {
      pairs += answers[0] > 0 && answers[1] > 0;
      answers[0] = answers[1] = 0;
    }
    ++document;
  }
  return spec_.train.dpo ? pairs : counted;
}

Status Batches::Count(const Pass& pass) {
  const uint32_t context = spec_.model.context, microbatches = MicrobatchesOf(pass);
  // Validation is one replica's.
  const uint32_t replicas = pass.trains() ? order_.replicas : 1;
  uint64_t counted = 0;
  const auto inputs = std::span(inputs_).first(context);
  const auto targets = std::span(targets_).first(context);
  for (uint64_t microbatch = 0; microbatch < uint64_t{replicas} * microbatches; ++microbatch) {
    for (uint32_t row = 0; row < spec_.train.microbatch_size; ++row) {
      const uint64_t window = pass.trains() ? order_.WindowOfAll(pass.step, microbatch, row)
                                            : WindowOf(pass, microbatch, row);
      LH_RETURN_IF_ERROR(ReadRow(pass, window, inputs, targets));
      counted += CountIn(inputs, targets);
    }
  }
  counted_ = static_cast<double>(std::max<uint64_t>(1, counted)) / (replicas * microbatches);
  return absl::OkStatus();
}

void Batches::Expect(const Pass& pass) {
  std::vector<uint64_t> windows;
  if (!pass.trains()) {
    for (uint64_t microbatch = 0; microbatch < MicrobatchesOf(pass); ++microbatch) {
      for (uint64_t row = 0; row < spec_.train.microbatch_size; ++row) {
        windows.push_back(WindowOf(pass, microbatch, row));
      }
    }
    source_->Expect(Text::kValidation, windows);
    return;
  }
  const uint64_t a_step = uint64_t{spec_.train.microbatches} * spec_.train.microbatch_size;
  const uint64_t first = order_.FirstMicrobatchOf(pass.step) * spec_.train.microbatch_size;
  const uint64_t exact = std::min(kMostAhead, kStepsAhead * a_step);
  // The window of the i-th sequence that this replica reads, counted from this step on.
  const auto window_of = [&](uint64_t i) {
    return order_.windows->WindowOf(first + i / a_step * order_.replicas * a_step + i % a_step);
  };
  for (uint64_t i = 0; i < exact; ++i) windows.push_back(window_of(i));
  // As many as the memory of chunks could hold.
  const uint64_t horizon = spec_.data.memory_bytes / (2 * uint64_t{spec_.model.context});
  const uint64_t stride = std::max<uint64_t>(1, horizon / kSamplesAhead);
  for (uint64_t i = exact; i < horizon; i += stride) windows.push_back(window_of(i));
  source_->Expect(Text::kTraining, windows);
}

uint32_t ValidationMicrobatches(const RunSpec& spec, uint64_t validation_tokens) {
  return ValidationMicrobatchesOf(spec, WindowsOf(validation_tokens, spec.model.context));
}

uint32_t ValidationMicrobatchesOf(const RunSpec& spec, uint64_t windows) {
  if (spec.validation.every == 0 || windows == 0) return 0;
  const uint64_t samples = std::min<uint64_t>(spec.validation.samples, windows);
  return static_cast<uint32_t>(std::max<uint64_t>(1, samples / spec.train.microbatch_size));
}

bool ValidatesAfter(const RunSpec& spec, Step step) {
  const uint32_t every = spec.validation.every;
  if (every == 0) return false;
  if (step.value() == spec.train.steps) return true;
  return step.value() == 0 ? spec.validation.at_start : step.value() % every == 0;
}

bool ValidatesCleanAfter(const RunSpec& spec, Step step) {
  switch (spec.validation.clean) {
    case CleanValidation::kAlways:
      return ValidatesAfter(spec, step);
    case CleanValidation::kEnd:
      return ValidatesAfter(spec, step) && step.value() == spec.train.steps;
    case CleanValidation::kNever:
      return false;
  }
  return false;
}

}  // namespace longhaul::worker
