// A mixture of experts, over the parameters of run/model/moe.cc. It replaces a block's MLP by many
// small MLPs; a router chooses a few of them for each token.
//
// Balance::kLoss keeps experts equally busy by an auxiliary loss, which acts in backward alone:
// balance_loss times the mean over the model's blocks of
//   experts x sum over experts of (the expert's share of tokens x its mean score),
// computed for each microbatch and divided by the number of microbatches. The loss that a stage
// reports excludes it. Balance::kBias has no auxiliary loss: EndStep moves each expert's bias by
// balance_rate, up if the expert got fewer tokens of the step than the mean, down if it got more.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/stage/model/experts.h"
#include "worker/stage/model/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class Mixture {
 public:
  // Makes the mixture of the block whose parameters' names begin with `prefix`. `group`: null, or
  // it outlives this object.
  Mixture(LayerMaker& make, const StageOptions& options, const std::string& prefix,
          const RankGroup* group);
  // Turns (rows, tokens, channels) in the compute type into the same shape in fp32. In a group: a
  // rank's own tokens (RankGroup::ToExperts).
  at::Tensor operator()(const at::Tensor& x) const;

  // Ends a step. Its tokens are those of all forwards with gradients.
  void EndStep() const;
  void ForgetStep() const;
  // Tokens of each expert, over all ranks, in the last step that EndStep ended.
  const std::vector<int64_t>& tokens() const { return tokens_; }

 private:
  struct Mlp {
    Linear gate, up, down;
    at::Tensor operator()(const at::Tensor& x) const;
  };
  static Mlp MakeMlp(LayerMaker& make, const std::string& prefix);

  const RankGroup* const group_;
  const int64_t experts_per_token_;
  const bool normalizes_;
  const double balance_;  // weight of this block's auxiliary loss; 0: none
  const double rate_;     // step of the biases
  Scorer router_;
  at::Tensor bias_;  // one bias an expert; undefined if biases do not move
  Experts experts_;
  Mlp shared_;                                    // the shared expert, if the model has one
  Linear shared_gate_;                            // gate of the shared expert's output for a token
  mutable std::vector<int64_t> counts_, tokens_;  // the current step's, and the last step's
};

}  // namespace longhaul::worker
