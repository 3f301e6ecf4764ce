#include "worker/pipeline/sample_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/stage/generator.h"

namespace longhaul::worker {

static_assert(wire::kMostRows == kMostSamplePrompts && wire::kMostStops == kMostSampleStops);

bool SamplesAfter(const RunSpec& spec, Step step) {
  const SamplesSpec& samples = spec.samples;
  if (samples.every == 0 || step == Step(0)) return false;
  return step.value() == spec.train.steps || step.value() % samples.every == 0;
}

SamplesRequested SamplesOf(const RunSpec& spec) {
  const SamplesSpec& samples = spec.samples;
  SamplesRequested request{.request = 0,
                           .prompts = samples.ids,
                           .round = {.tokens = samples.tokens,
                                     .top_k = 0,
                                     .temperature = samples.temperature,
                                     .top_p = samples.top_p,
                                     .seed = samples.seed,
                                     .lengths = {},
                                     .stops = samples.stop}};
  if (!samples.ids.empty()) return request;
  for (const std::string& prompt : samples.prompts) {
    std::vector<uint32_t>& ids = request.prompts.emplace_back();
    for (const char byte : prompt) ids.push_back(static_cast<unsigned char>(byte));
  }
  return request;
}

std::string ProblemOf(const SamplesRequested& request, const RunSpec& spec, uint32_t vocabulary) {
  const uint32_t context = spec.model.context, tokens = request.round.tokens;
  if (request.prompts.empty() || request.prompts.size() > kMostSamplePrompts) {
    return fmt::format("expected 1 to {} prompts, got {}", kMostSamplePrompts,
                       request.prompts.size());
  }
  if (tokens == 0 || tokens > kMostSampleTokens) {
    return fmt::format("expected 1 to {} new tokens, got {}", kMostSampleTokens, tokens);
  }
  if (request.round.stops.size() > kMostSampleStops) {
    return fmt::format("expected at most {} end tokens, got {}", kMostSampleStops,
                       request.round.stops.size());
  }
  for (const std::vector<uint32_t>& ids : request.prompts) {
    if (ids.empty() || ids.size() + tokens > context) {
      return fmt::format("a prompt of {} tokens and {} new ones: expected 1 to {} together",
                         ids.size(), tokens, context);
    }
    const auto outside = std::ranges::find_if(ids, [&](uint32_t id) { return id >= vocabulary; });
    if (outside != ids.end()) {
      return fmt::format("expected token ids below the vocabulary of {}, got {}", vocabulary,
                         *outside);
    }
  }
  return "";
}

StatusOr<SampleRound> SampleRound::Create(const wire::SampleRound& shape, const RunSpec& spec) {
  if (shape.lengths.empty() || shape.tokens > kMostSampleTokens) {
    return InvalidArgument("expected a round of 1 to {} texts and at most {} tokens, got {} and {}",
                           kMostSamplePrompts, kMostSampleTokens, shape.lengths.size(),
                           shape.tokens);
  }
  for (const uint32_t length : shape.lengths) {
    if (length > 0 && uint64_t{length} + shape.tokens <= spec.model.context) continue;
    return InvalidArgument("expected a prompt and {} new tokens within {}, got one of {} tokens",
                           shape.tokens, spec.model.context, length);
  }
  return SampleRound(shape, spec);
}

SampleRound::SampleRound(const wire::SampleRound& shape, const RunSpec& spec)
    : shape_(shape),
      microbatch_size_(spec.train.microbatch_size),
      context_(spec.model.context),
      slice_tokens_(spec.model.context / spec.pipeline.SlicesNow()),
      sampled_(rows()),
      ended_(rows()),
      taken_(rows(), wire::kNoToken),
      tokens_(size_t{microbatch_size_} * context_),
      documents_(tokens_.size()) {}

void SampleRound::SetPrompts(const std::vector<std::vector<uint32_t>>& prompts) {
  for (const std::vector<uint32_t>& ids : prompts) prompts_.emplace_back(ids.begin(), ids.end());
}

std::span<const int32_t> SampleRound::TokensOf(Microbatch microbatch) {
  std::ranges::fill(tokens_, 0);
  for (uint32_t i = 0; i < microbatch_size_; ++i) {
    const uint32_t row = microbatch.value() * microbatch_size_ + i;
    if (row >= prompts_.size()) break;
    auto at = tokens_.begin() + static_cast<ptrdiff_t>(size_t{i} * context_);
    at = std::ranges::copy(prompts_[row], at).out;
    std::ranges::transform(sampled_[row], at, [](uint32_t id) { return static_cast<int32_t>(id); });
  }
  return tokens_;
}

template <class Each>
void SampleRound::EachIn(Slice slice, const Each& each) const {
  for (uint32_t i = 0; i < microbatch_size_; ++i) {
    const uint32_t row = slice.microbatch.value() * microbatch_size_ + i;
    if (row >= rows()) break;
    if (!ended_[row] && (LengthOf(row) - 1) / slice_tokens_ == slice.index) each(row);
  }
}

std::vector<Stage::Place> SampleRound::PlacesIn(Slice slice) const {
  std::vector<Stage::Place> places;
  EachIn(slice, [&](uint32_t row) {
    places.push_back({.row = row % microbatch_size_, .token = (LengthOf(row) - 1) % slice_tokens_});
  });
  return places;
}

Status SampleRound::AddLogits(Slice slice, std::span<const float> logits) {
  std::vector<uint32_t> of_slice;
  EachIn(slice, [&](uint32_t row) { of_slice.push_back(row); });
  if (of_slice.empty()) return absl::OkStatus();
  const size_t vocabulary = logits.size() / of_slice.size();
  if (vocabulary == 0 || vocabulary * of_slice.size() != logits.size()) {
    return InvalidArgument("expected logits of {} texts, got {} numbers", of_slice.size(),
                           logits.size());
  }
  for (size_t i = 0; i < of_slice.size(); ++i) {
    const uint32_t row = of_slice[i];
    const auto of_row = logits.subspan(i * vocabulary, vocabulary);
    if (!std::ranges::all_of(of_row, [](float logit) { return std::isfinite(logit); })) {
      saw_nonfinite_ = true;
      continue;
    }
    const Sampling sampling{.temperature = shape_.temperature,
                            .top_k = shape_.top_k,
                            .top_p = shape_.top_p,
                            .seed = shape_.seed + row};
    const uint32_t id = Sample(of_row, sampling, LengthOf(row));
    if (std::ranges::find(shape_.stops, id) == shape_.stops.end()) taken_[row] = id;
  }
  return absl::OkStatus();
}

wire::SampledTokens SampleRound::Sampled() {
  wire::SampledTokens sampled{.over = false, .nonfinite = saw_nonfinite_, .tokens = taken_};
  const bool all_ended =
      std::ranges::all_of(taken_, [](uint32_t id) { return id == wire::kNoToken; });
  sampled.over = saw_nonfinite_ || all_ended || passes_ + 1 >= shape_.tokens;
  std::ranges::fill(taken_, wire::kNoToken);
  return sampled;
}

Status SampleRound::Append(const wire::SampledTokens& sampled) {
  ++passes_;
  const bool must_end = passes_ >= shape_.tokens;
  if (sampled.tokens.size() != rows() || (must_end && !sampled.over)) {
    return InvalidArgument("expected the tokens of {} texts in at most {} passes, got {} in more",
                           rows(), shape_.tokens, sampled.tokens.size());
  }
  for (uint32_t row = 0; row < rows(); ++row) {
    const uint32_t id = sampled.tokens[row];
    if (id == wire::kNoToken) {
      ended_[row] = true;
    } else if (!ended_[row]) {
      sampled_[row].push_back(id);
    }
  }
  nonfinite_ = sampled.nonfinite;
  over_ = sampled.over;
  return absl::OkStatus();
}

}  // namespace longhaul::worker
