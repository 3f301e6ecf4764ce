// The layers of one stage as tensors and functional operators.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_GPT_H_
#define LONGHAUL_WORKER_STAGE_GPT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/stage/stage.h"

namespace longhaul::worker {

struct Parameter {
  std::string name;  // global
  at::Tensor value;  // fp32 leaf that requires a gradient
};

// The parameters that a stage of these options holds, in the model's order, initialised.
std::vector<Parameter> MakeParameters(const StageOptions& options);

class Gpt {
 public:
  explicit Gpt(const StageOptions& options);

  // `input`: on the first stage ids (microbatch, context) int64, else (microbatch, context, hidden)
  // fp32. Gives the hidden state (fp32), on the last stage the logits.
  at::Tensor Forward(const at::Tensor& input) const;
  // Mean cross-entropy, an fp32 scalar. `targets`: int64, as many as rows of `logits`.
  static at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets);

  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  struct Block {
    at::Tensor ln_1_weight, ln_1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias;
    at::Tensor ln_2_weight, ln_2_bias, fc_weight, fc_bias, mlp_proj_weight, mlp_proj_bias;
  };
  at::Tensor Attention(const Block& block, const at::Tensor& x) const;
  at::Tensor RunBlock(const Block& block, const at::Tensor& x) const;

  const int64_t hidden_, heads_;
  const bool bf16_;
  std::vector<Parameter> parameters_;
  std::vector<Block> blocks_;
  at::Tensor wte_, wpe_;                              // first stage
  at::Tensor ln_f_weight_, ln_f_bias_, head_weight_;  // last stage
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GPT_H_
