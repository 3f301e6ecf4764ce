// The layers of one stage, for any model family: the common part, and the virtual functions in
// which families differ (gpt.h, llama.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/stage/model/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Keys and values of some tokens: (rows, heads of keys and values, tokens, channels).
struct KeysAndValues {
  at::Tensor keys, values;
};

// Keeps the keys and values of earlier tokens, to which the current ones attend.
class Past {
 public:
  virtual ~Past() = default;
  // Appends the current tokens' keys and values of a block; returns the keys and values of all
  // tokens so far.
  virtual KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) = 0;
};

// The cache of keys and values for generation: all tokens so far.
class Seen final : public Past {
 public:
  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;
  int64_t tokens = 0;

 private:
  std::vector<KeysAndValues> blocks_;
};

class Model {
 public:
  // Makes the layers of this stage with initial parameters. Only this function lists all families.
  // `group`: the model holds this rank's shares of the parameters, and `group` outlives it; null: a
  // stage of one rank.
  static std::unique_ptr<Model> Create(const StageOptions& options,
                                       const RankGroup* group = nullptr);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Positions of tokens and the attention mask, the same for all blocks of a pass.
  struct Layout {
    // The position in its document of each token, (microbatch, context) int64. Undefined if each
    // row is one document.
    at::Tensor positions;
    // Which tokens attend to which: (microbatch or 1, 1, tokens, all tokens up to them) bool.
    // Unset: each token attends to itself and all earlier ones.
    std::optional<at::Tensor> mask;
    int64_t first = 0;     // position of the first token in its row
    Past* past = nullptr;  // null: no earlier tokens, and these are not kept

    // Calls Past::Extend, if there is a past.
    KeysAndValues WithPast(size_t block, const KeysAndValues& new_ones) const {
      return past == nullptr ? new_ones : past->Extend(block, new_ones);
    }
    // Tokens attend to themselves and all earlier ones.
    bool causal() const { return !mask && first == 0; }
  };
  // The layout of tokens [first, first + tokens) of each row. `documents`: each token's document
  // number in its row (Stage::Input), int64, shaped as ids; undefined: one document a row.
  static Layout LayoutOf(const at::Tensor& documents, int64_t first, int64_t tokens,
                         const at::Device& device);

  // Runs this stage's blocks [begin, end), counted from 0; before block 0, on the first stage, the
  // embedding. `input`: ids (microbatch, context) int64 for the embedding, else (microbatch,
  // context, hidden) fp32. Returns the hidden state, fp32.
  at::Tensor RunBlocks(const at::Tensor& input, const Layout& layout, size_t begin,
                       size_t end) const;
  size_t block_count() const { return block_count_; }
  // Last stage: final norm and head, (..., hidden) to (..., vocabulary), fp32. In a group: this
  // rank's share of the vocabulary.
  virtual at::Tensor Logits(const at::Tensor& x) const = 0;
  // Runs the whole stage. Returns its hidden state; on the last stage the logits.
  at::Tensor Forward(const at::Tensor& input, const at::Tensor& documents = {}) const;
  // For generation, without gradients. `input`: (rows, tokens) or (rows, tokens, hidden), follows
  // the tokens in `seen`; one token at a time after the first call. Returns the hidden state; on
  // the last stage the logits of the last token, (rows, 1, vocabulary).
  at::Tensor Extend(const at::Tensor& input, Seen* seen) const;
  // Whether a CUDA graph can record the passes: the GPU does the same work for any input, and the
  // host reads no result.
  virtual bool can_be_recorded() const { return true; }
  // Call after parameters have changed, before the next Forward.
  void RefreshCasts() const { maker_.RefreshCasts(); }
  // Cross-entropy of Logits, an fp32 scalar. Without `counted`: the mean. With `counted`, an fp32
  // scalar: the sum over targets that are not kNoTarget, divided by `counted`. `targets`: int64,
  // one for each row of `logits`.
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets,
                  const at::Tensor& counted = {}) const;
  // Returns the undivided sum.
  at::Tensor SumOfLosses(const at::Tensor& logits, const at::Tensor& targets) const;

  // Sets all published parameters, in the descriptor's order.
  Status Load(const ReadParameter& read) const { return maker_.Load(read); }

  // Changes that the model itself makes at the end of a step (biases that balance experts). Call
  // EndStep after the optimizer and before RefreshCasts; ForgetStep instead if the step has no
  // update.
  virtual void EndStep() const {}
  virtual void ForgetStep() const {}
  // For each block with experts, in order: tokens of each expert in the last step that EndStep
  // ended.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // Parameters that change, in the model's order.
  const std::vector<Parameter>& parameters() const { return maker_.parameters(); }
  const RankGroup* group() const { return group_; }
  uint64_t frozen_bytes() const { return maker_.frozen_bytes(); }

 protected:
  Model(const StageOptions& options, const RankGroup* group);

  // For the constructors of families.
  LayerMaker& maker() { return maker_; }
  // Type of the operands of matrix products.
  at::ScalarType compute_type() const { return maker_.compute_type(); }
  // Number of ranks that share the stage's matrices.
  int64_t ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  // Enter: norm of a hidden state that goes into products whose matrices are split, in their type.
  // Leave: sums a product's partial results over ranks (rank_group.h).
  template <class Norm>
  at::Tensor Enter(const Norm& norm, const at::Tensor& x) const {
    if (group_ == nullptr) return norm(x).to(compute_type());
    return group_->Enter(norm(group_->EnterNorm(x)).to(compute_type()));
  }
  at::Tensor Leave(const at::Tensor& part) const;
  // In a group, ToExperts takes this rank's part of the experts' inputs, and OfExperts turns their
  // fp32 outputs into the compute type and gathers them (rank_group.h). Otherwise both return their
  // argument.
  at::Tensor ToExperts(const at::Tensor& normed) const;
  at::Tensor OfExperts(const at::Tensor& given) const;
  // The final norm, before the head.
  template <class Norm>
  at::Tensor Last(const Norm& norm, const at::Tensor& x) const {
    return norm(group_ == nullptr ? x : group_->EnterNorm(x));
  }

 private:
  virtual at::Tensor Embed(const at::Tensor& ids, const Layout& layout) const = 0;
  // Last stage: the vocabulary entry of this rank's first logit.
  virtual int64_t FirstLogit() const = 0;
  virtual at::Tensor RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const = 0;

  const bool first_, last_;
  const size_t block_count_;
  const RankGroup* const group_;
  LayerMaker maker_;
};

}  // namespace longhaul::worker
