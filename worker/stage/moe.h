// A mixture of experts, over the parameters of run/model/moe.cc: the MLP of a block in which each
// token goes through those of many small MLPs that a router chooses for it.
//
// What keeps experts equally busy (Balance::kLoss) acts in backward alone, as if the step's loss
// had one more term: balance_loss times the mean over the model's blocks of
//   experts x sum over experts of (share of the tokens that it got x its mean score),
// each of a microbatch and so by 1 / microbatches. The loss that a stage reports is without it.
// With Balance::kBias there is no such term: EndStep moves the bias of each expert by balance_rate,
// up where it got fewer tokens of the step than the mean, down where it got more.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_MOE_H_
#define LONGHAUL_WORKER_STAGE_MOE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/stage/experts.h"
#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class Mixture {
 public:
  // Of the block whose parameters' names begin with `prefix`. `group`: null, or it outlives this.
  Mixture(LayerMaker& make, const StageOptions& options, const std::string& prefix,
          const RankGroup* group);
  // (rows, tokens, channels) in the type of products to as many in fp32; in a group those of a
  // rank's own tokens (RankGroup::ToExperts).
  at::Tensor operator()(const at::Tensor& x) const;

  // At the end of a step, whose tokens are those that went through with a graph.
  void EndStep() const;
  void ForgetStep() const;
  // Of the step before the last EndStep: of each expert, of all ranks.
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
  const double balance_;  // of this block's auxiliary loss; 0: there is none
  const double rate_;     // of the biases
  Scorer router_;
  at::Tensor bias_;  // of experts; undefined where none moves
  Experts experts_;
  Mlp shared_;                                    // where the model has it:
  Linear shared_gate_;                            // of all that it gives to a token
  mutable std::vector<int64_t> counts_, tokens_;  // of this step, of the one before
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_MOE_H_
