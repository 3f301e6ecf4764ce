// The layers of family gpt (GPT-2), over the parameters that run/model/gpt.cc describes.
//
// Internal to worker/stage. Threads and errors: as in model.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/stage/model/layers.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {

class Gpt final : public Model {
 public:
  // Arguments: as of Model::Create (model.h).
  Gpt(const StageOptions& options, const RankGroup* group);
  at::Tensor Logits(const at::Tensor& x) const override;

 private:
  struct Block {
    LayerNorm norm_1;
    Linear qkv, attention_out;
    LayerNorm norm_2;
    Linear mlp_in, mlp_out;
  };
  at::Tensor Embed(const at::Tensor& ids, const Layout& layout) const override;
  int64_t FirstLogit() const override { return head_.first_row; }
  at::Tensor RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const override;
  at::Tensor Attention(size_t block, const at::Tensor& x, const Layout& layout) const;

  const int64_t heads_, head_channels_;  // heads of this rank, and channels of a head
  std::vector<Block> blocks_;
  Embedding tokens_;      // first stage
  Embedding positions_;   // first stage
  LayerNorm final_norm_;  // last stage
  Head head_;             // makes the logits; last stage
};

}  // namespace longhaul::worker
