// A mixture of experts, with the parameters that run/model/moe.cc describes. It replaces the MLP of
// a block by many small MLPs, the experts. A router chooses a few experts for each token.
//
// Balance::kLoss keeps experts equally busy by an auxiliary loss. This loss acts only in backward:
// the loss that a stage reports does not include it. It is balance_loss times the mean over the
// model's blocks of
//   experts x sum over experts of (the expert's share of tokens x its mean score),
// computed for each microbatch and divided by the number of microbatches. Balance::kBias has no
// auxiliary loss. Each expert has a bias, which is added to its score only when experts are chosen.
// EndStep moves a bias by balance_rate: up if the expert got fewer tokens in the step than the
// mean, down if it got more.
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
  // Makes the mixture of a block. `prefix`: the beginning of its parameters' names. `group`: null,
  // or it must outlive this object.
  Mixture(LayerMaker& make, const StageOptions& options, const std::string& prefix,
          const RankGroup* group);
  // `x`: (rows, tokens, channels) in the compute type; in a group, this rank's own tokens
  // (RankGroup::ToExperts). Returns fp32 of the same shape.
  at::Tensor operator()(const at::Tensor& x) const;

  // Both end a step; only EndStep moves the biases. A step counts the tokens of all forwards that
  // run with gradients.
  void EndStep() const;
  void ForgetStep() const;
  // Number of tokens of each expert, over all ranks, in the last step that EndStep ended.
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
  const double rate_;     // by which EndStep moves a bias
  Scorer router_;
  at::Tensor bias_;  // of each expert; undefined unless Balance::kBias
  Experts experts_;
  Mlp shared_;                                    // the shared expert, if the model has one
  Linear shared_gate_;                            // gate of the shared expert's output for a token
  mutable std::vector<int64_t> counts_, tokens_;  // of the current step, and of the last one
};

}  // namespace longhaul::worker
