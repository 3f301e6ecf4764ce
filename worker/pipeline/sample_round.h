// A round of samples at one stage: texts that the pipeline continues between two steps, all at
// once, one token of each text in each pass. The texts are the rows of as many microbatches as they
// need. A row is padded behind the text, where causal attention does not look. No keys and values
// are kept between passes.
//
//   first stage   TokensOf for each microbatch
//   last stage    PlacesIn and AddLogits for each slice, then Sampled
//   all stages    Append what the last stage sampled, until is_over
//
// Pure data; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "proto/wire/sample_messages.h"
#include "run/file/run_spec.h"
#include "worker/pipeline/event_queue.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Returns true if the run file wants samples after `step`: every `samples.every` steps and after
// the last one.
bool SamplesAfter(const RunSpec& spec, Step step);
// The run file's request. Without samples.ids, each byte of a prompt is a token.
SamplesRequested SamplesOf(const RunSpec& spec);
// Returns why a round cannot take these prompts, as a sentence without its full stop; "": it can.
// `vocabulary`: number of token ids.
std::string ProblemOf(const SamplesRequested& request, const RunSpec& spec, uint32_t vocabulary);

class SampleRound {
 public:
  // kInvalidArgument: no texts, or a text that the context has no room for.
  static StatusOr<SampleRound> Create(const wire::SampleRound& shape, const RunSpec& spec);

  // Number of microbatches of each pass.
  uint32_t microbatches() const { return (rows() + microbatch_size_ - 1) / microbatch_size_; }
  bool is_over() const { return over_; }
  // True if the round is over because logits were not finite.
  bool is_nonfinite() const { return nonfinite_; }
  // New tokens of each text.
  const std::vector<std::vector<uint32_t>>& sampled() const { return sampled_; }

  // First stage: the texts' beginnings, with the lengths that the shape says.
  void SetPrompts(const std::vector<std::vector<uint32_t>>& prompts);
  // First stage: the tokens of a microbatch, as Stage::Input has them. Valid until the next call.
  std::span<const int32_t> TokensOf(Microbatch microbatch);
  // For stages whose attention stays within documents: each row is one.
  std::span<const int32_t> Documents() const { return documents_; }

  // Last stage: where the slice has the last tokens of texts that have not ended.
  std::vector<Stage::Place> PlacesIn(Slice slice) const;
  // Last stage: takes the next tokens by `logits` (Stage::EvaluateLogits of PlacesIn).
  // kInvalidArgument: another number of logits.
  Status AddLogits(Slice slice, std::span<const float> logits);
  // Last stage: what AddLogits has taken in this pass.
  wire::SampledTokens Sampled();
  // Ends a pass. kInvalidArgument: it does not fit the round.
  Status Append(const wire::SampledTokens& sampled);

 private:
  SampleRound(const wire::SampleRound& shape, const RunSpec& spec);
  uint32_t rows() const { return static_cast<uint32_t>(shape_.lengths.size()); }
  // Number of tokens of a text.
  uint32_t LengthOf(uint32_t row) const {
    return shape_.lengths[row] + static_cast<uint32_t>(sampled_[row].size());
  }
  // Calls `each(row)` for each text that has its last token in the slice.
  template <class Each>
  void EachIn(Slice slice, const Each& each) const;

  wire::SampleRound shape_;
  uint32_t microbatch_size_ = 1, context_ = 0, slice_tokens_ = 0;
  std::vector<std::vector<int32_t>> prompts_;  // first stage
  std::vector<std::vector<uint32_t>> sampled_;
  std::vector<bool> ended_;      // by a token of shape_.stops
  std::vector<uint32_t> taken_;  // in this pass; kNoToken: none
  std::vector<int32_t> tokens_, documents_;
  uint32_t passes_ = 0;
  bool over_ = false, nonfinite_ = false, saw_nonfinite_ = false;
};

}  // namespace longhaul::worker
