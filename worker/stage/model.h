// The layers of one stage, whatever the model's family: what is the same in all of them, and the
// seam behind which they differ (gpt.h, llama.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_MODEL_H_
#define LONGHAUL_WORKER_STAGE_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Of some tokens: (rows, heads of keys and values, tokens, channels).
struct KeysAndValues {
  at::Tensor keys, values;
};

// Who keeps what blocks need of the tokens before those that they run on.
class Past {
 public:
  virtual ~Past() = default;
  // `new_ones` are a block's of the tokens at hand. Gives those of all tokens up to these.
  virtual KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) = 0;
};

// Of generation: all tokens so far.
class Seen final : public Past {
 public:
  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;
  int64_t tokens = 0;

 private:
  std::vector<KeysAndValues> blocks_;
};

class Model {
 public:
  // What a stage of these options holds, with initial parameters. The one place that knows all
  // families.
  // `group`: it holds this rank's shares; null: a stage of one rank. Outlives it.
  static std::unique_ptr<Model> Create(const StageOptions& options,
                                       const RankGroup* group = nullptr);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Where tokens stand and whom they see, the same for all blocks of a pass.
  struct Layout {
    // Where documents are apart; undefined where a row is one document.
    at::Tensor positions;  // (microbatch, context) int64: of each token in its document
    // (microbatch or 1, 1, tokens, those and all before) bool: who attends to whom; else whoever
    // comes later.
    std::optional<at::Tensor> mask;
    int64_t first = 0;     // where the first token stands in its row
    Past* past = nullptr;  // null: nobody keeps any, and there are none before

    // As Past::Extend.
    KeysAndValues WithPast(size_t block, const KeysAndValues& new_ones) const {
      return past == nullptr ? new_ones : past->Extend(block, new_ones);
    }
    // Tokens see those before them and themselves.
    bool causal() const { return !mask && first == 0; }
  };
  // Of the tokens [first, first + tokens) of each row. `documents`: of each token of the row the
  // number of its document (Stage::Input), int64 as ids; undefined: a row is one.
  static Layout LayoutOf(const at::Tensor& documents, int64_t first, int64_t tokens,
                         const at::Device& device);

  // Runs blocks [begin, end) of this stage's, which counts them from 0; before block 0 the first
  // stage's embedding. `input`: before the embedding ids (microbatch, context) int64, else
  // (microbatch, context, hidden) fp32. Gives the hidden state, fp32.
  at::Tensor RunBlocks(const at::Tensor& input, const Layout& layout, size_t begin,
                       size_t end) const;
  size_t block_count() const { return block_count_; }
  // Last stage: final norm and head of a hidden state, (..., hidden) to (..., vocabulary), fp32; in
  // a group those of this rank's share of the vocabulary.
  virtual at::Tensor Logits(const at::Tensor& x) const = 0;
  // All of the stage: its hidden state, on the last stage the logits.
  at::Tensor Forward(const at::Tensor& input, const at::Tensor& documents = {}) const;
  // For generation, without a graph: `input` (rows, tokens) or (rows, tokens, hidden) follows what
  // was seen; one token at a time after the first call. Gives the hidden state, or on the last
  // stage the logits of the last token, (rows, 1, vocabulary).
  at::Tensor Extend(const at::Tensor& input, Seen* seen) const;
  // A GPU does the same work for any input, and the host need not look at any of it.
  virtual bool can_be_recorded() const { return true; }
  // After parameters have changed, before the next Forward.
  void RefreshCasts() const { maker_.RefreshCasts(); }
  // Cross-entropy of Logits, an fp32 scalar: the mean, or with `counted`, an fp32 scalar, the sum
  // over targets that are not kNoTarget by that. `targets`: int64, as many as rows of `logits`.
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets,
                  const at::Tensor& counted = {}) const;
  // That sum.
  at::Tensor SumOfLosses(const at::Tensor& logits, const at::Tensor& targets) const;

  // Gives all parameters that are published, in the order of its descriptor, other values.
  Status Load(const ReadParameter& read) const { return maker_.Load(read); }

  // After the optimizer's update at the end of a step, before RefreshCasts: what the model itself
  // changes then. ForgetStep instead, where there is no update.
  virtual void EndStep() const {}
  virtual void ForgetStep() const {}
  // Of the blocks that have experts, in their order: how many tokens each expert got in the step
  // before the last EndStep.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // Those that change, in the model's order.
  const std::vector<Parameter>& parameters() const { return maker_.parameters(); }
  const RankGroup* group() const { return group_; }
  uint64_t frozen_bytes() const { return maker_.frozen_bytes(); }

 protected:
  Model(const StageOptions& options, const RankGroup* group);

  // For the constructors of families.
  LayerMaker& maker() { return maker_; }
  // Of what goes into matrix products.
  at::ScalarType compute_type() const { return maker_.compute_type(); }
  // Ranks that share the stage's matrices.
  int64_t ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  // The norm of a hidden state on its way into products whose matrices are split, in their type;
  // and what a product gave that is part of a sum over ranks (rank_group.h).
  template <class Norm>
  at::Tensor Enter(const Norm& norm, const at::Tensor& x) const {
    if (group_ == nullptr) return norm(x).to(compute_type());
    return group_->Enter(norm(group_->EnterNorm(x)).to(compute_type()));
  }
  at::Tensor Leave(const at::Tensor& part) const;
  // What goes into experts, and what they gave, in fp32.
  at::Tensor ToExperts(const at::Tensor& normed) const;
  at::Tensor OfExperts(const at::Tensor& given) const;
  // The final norm, before the head.
  template <class Norm>
  at::Tensor Last(const Norm& norm, const at::Tensor& x) const {
    return norm(group_ == nullptr ? x : group_->EnterNorm(x));
  }

 private:
  virtual at::Tensor Embed(const at::Tensor& ids, const Layout& layout) const = 0;
  // Last stage: the vocabulary's entry with which this rank's logits begin.
  virtual int64_t FirstLogit() const = 0;
  virtual at::Tensor RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const = 0;

  const bool first_, last_;
  const size_t block_count_;
  const RankGroup* const group_;
  LayerMaker maker_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_MODEL_H_
