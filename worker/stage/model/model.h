// The layers of one stage, for any model family. Contains the part that all families share; virtual
// functions are for what differs (gpt.h, llama.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/stage/model/attention.h"
#include "worker/stage/model/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Keys and values of some tokens, each (rows, heads of keys and values, tokens, channels).
struct KeysAndValues {
  at::Tensor keys, values;
};

// Keeps the keys and values of earlier tokens, so that current tokens can attend to earlier ones.
class Past {
 public:
  virtual ~Past() = default;
  // Appends the keys and values that block number `block` of the stage computed for the current
  // tokens. Returns the keys and values of all tokens so far in this block.
  virtual KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) = 0;
};

// The cache of keys and values for generation. It keeps all tokens so far. `tokens`: their number;
// Model::Extend counts them.
class Seen final : public Past {
 public:
  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;
  int64_t tokens = 0;

 private:
  std::vector<KeysAndValues> blocks_;
};

class Model {
 public:
  // Makes the layers of a stage with initial parameters. Only this function lists all families.
  // `group`: if not null, the model holds this rank's shares of the parameters, and `group` must
  // outlive it.
  static std::unique_ptr<Model> Create(const StageOptions& options,
                                       const RankGroup* group = nullptr);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Positions of tokens, and which tokens attend to which. The same for all blocks of a pass.
  struct Layout {
    Sight sight;
    // The position of each token in its document, (rows, tokens) int64. Undefined if each row is
    // one document.
    at::Tensor positions;
    int64_t first = 0;     // position of the first token in its row
    Past* past = nullptr;  // null: there are no earlier tokens, and keys and values are not kept

    // Returns Past::Extend, or only the new keys and values if there is no past.
    KeysAndValues WithPast(size_t block, const KeysAndValues& new_ones) const {
      return past == nullptr ? new_ones : past->Extend(block, new_ones);
    }
  };
  // Returns the layout of tokens [first, first + tokens) of each row. `documents`: the document
  // number of each token (Stage::Input), (rows, context) int64; undefined: each row is one
  // document. `most_documents`: no fewer than all rows have together; 0: as many as tokens.
  static Layout LayoutOf(const at::Tensor& documents, int64_t first, int64_t tokens,
                         int64_t most_documents = 0);

  // Runs the blocks [begin, end) of this stage, counted from 0. On the first stage the embedding
  // comes before block 0. `input`: ids (rows, tokens) int64 for the embedding, else the hidden
  // state (rows, tokens, channels) fp32. Returns the hidden state, fp32.
  at::Tensor RunBlocks(const at::Tensor& input, const Layout& layout, size_t begin,
                       size_t end) const;
  size_t block_count() const { return block_count_; }
  // Final norm and head, on the last stage: (..., channels) to (..., vocabulary), fp32. In a group:
  // this rank's share of the vocabulary.
  virtual at::Tensor Logits(const at::Tensor& x) const = 0;
  // The vocabulary entry of the first column of Logits.
  int64_t first_logit() const { return FirstLogit(); }
  // Runs the whole stage. `input`: as for RunBlocks. `documents`: as for LayoutOf. Returns the
  // stage's hidden state; on the last stage the logits.
  at::Tensor Forward(const at::Tensor& input, const at::Tensor& documents = {}) const;
  // Runs the stage for generation, without gradients. `input`: the ids or hidden states of the
  // tokens that follow those in `seen`, shaped as for RunBlocks. Returns the hidden state; on the
  // last stage the logits of the last token, (rows, 1, vocabulary).
  at::Tensor Extend(const at::Tensor& input, Seen* seen) const;
  // True if a CUDA graph can record the passes: the GPU does the same work for any input, and the
  // host reads no result.
  virtual bool can_be_recorded() const { return true; }
  // Call it after parameters have changed and before the next forward.
  void RefreshCasts() const { maker_.RefreshCasts(); }
  // Returns the cross-entropy of `logits`, the result of Logits, as an fp32 scalar. `targets`:
  // int64, one for each row of `logits`. If `counted` is undefined, returns the mean over all
  // targets. Otherwise returns the sum over targets that are not kNoTarget, divided by `counted`,
  // an fp32 scalar.
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets,
                  const at::Tensor& counted = {}) const;
  // Returns the sum of cross-entropies over targets that are not kNoTarget, without division.
  at::Tensor SumOfLosses(const at::Tensor& logits, const at::Tensor& targets) const;

  // Returns the cross-entropy of each row of `logits`, fp32; 0 where the target is kNoTarget.
  at::Tensor Losses(const at::Tensor& logits, const at::Tensor& targets) const;

  // As LayerMaker::Load, in the order of the family's descriptor (run/model/family.h).
  Status Load(const ReadParameter& read) const { return maker_.Load(read); }

  // At the end of a step the model itself changes the biases that balance experts. Call EndStep
  // after the optimizer and before RefreshCasts. If the step has no update, call ForgetStep
  // instead.
  virtual void EndStep() const {}
  virtual void ForgetStep() const {}
  // For each block with experts, the tokens of each expert in the last step that EndStep ended.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // The parameters that training changes, in the model's order.
  const std::vector<Parameter>& parameters() const { return maker_.parameters(); }
  const RankGroup* group() const { return group_; }
  uint64_t frozen_bytes() const { return maker_.frozen_bytes(); }
  // The dropout of LoRA's adapters; null: there is none.
  Dropout* dropout() const { return maker_.dropout(); }
  // The switch of LoRA's adapters.
  AdapterSwitch* adapters() const { return maker_.adapters(); }

 protected:
  Model(const StageOptions& options, const RankGroup* group);

  // For the constructors of families.
  LayerMaker& maker() { return maker_; }
  // Type of the operands of matrix products.
  at::ScalarType compute_type() const { return maker_.compute_type(); }
  // Number of ranks that share the stage's matrices.
  int64_t ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  // Enter returns the norm of a hidden state, in the compute type, for products whose matrices are
  // split over ranks. Leave sums the partial results of such a product over ranks (rank_group.h).
  // With one rank nothing is exchanged.
  template <class Norm>
  at::Tensor Enter(const Norm& norm, const at::Tensor& x) const {
    if (group_ == nullptr) return norm(x).to(compute_type());
    return group_->Enter(norm(group_->EnterNorm(x)).to(compute_type()));
  }
  at::Tensor Leave(const at::Tensor& part) const;
  // In a group, ToExperts returns this rank's part of the inputs of experts. OfExperts turns the
  // fp32 outputs of experts into the compute type and gathers them (rank_group.h). With one rank
  // both return their argument.
  at::Tensor ToExperts(const at::Tensor& normed) const;
  at::Tensor OfExperts(const at::Tensor& given) const;
  // The final norm, before the head.
  template <class Norm>
  at::Tensor Last(const Norm& norm, const at::Tensor& x) const {
    return norm(group_ == nullptr ? x : group_->EnterNorm(x));
  }

 private:
  virtual at::Tensor Embed(const at::Tensor& ids, const Layout& layout) const = 0;
  // The vocabulary entry of this rank's first logit, on the last stage.
  virtual int64_t FirstLogit() const = 0;
  virtual at::Tensor RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const = 0;

  const bool first_, last_;
  const size_t block_count_;
  const RankGroup* const group_;
  LayerMaker maker_;
};

}  // namespace longhaul::worker
