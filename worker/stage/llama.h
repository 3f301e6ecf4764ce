// Llama's layers, Mistral's and Qwen's, over the parameters of run/model/llama.cc.
//
// Internal to worker/stage, as model.h.
#ifndef LONGHAUL_WORKER_STAGE_LLAMA_H_
#define LONGHAUL_WORKER_STAGE_LLAMA_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/stage/layers.h"
#include "worker/stage/model.h"
#include "worker/stage/rotary.h"

namespace longhaul::worker {

class Llama final : public Model {
 public:
  Llama(const StageOptions& options, const RankGroup* group);
  at::Tensor Logits(const at::Tensor& x) const override;

 private:
  struct Block {
    RmsNorm norm_1;
    Linear queries, keys, values, attention_out;
    RmsNorm query_norm, key_norm;  // where the model has them
    RmsNorm norm_2;
    Linear gate, up, down;
  };
  Block MakeBlock(const ModelSpec& model, uint32_t layer);
  at::Tensor Embed(const at::Tensor& ids, const Layout& layout) const override;
  int64_t FirstLogit() const override { return head_.first_row; }
  at::Tensor RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const override;
  at::Tensor Attention(const Block& block, const at::Tensor& x, const Layout& layout) const;

  const int64_t head_channels_;
  std::vector<Block> blocks_;
  std::optional<Rotary> rotary_;  // where there are blocks
  Embedding tokens_;              // first stage
  RmsNorm final_norm_;            // last stage
  Head head_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_LLAMA_H_
