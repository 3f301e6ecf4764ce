// The layers of family llama (Llama and its kin) over the parameters of run/model/llama.cc, and
// of family moe (run/model/moe.cc), which differs in the MLP.
//
// Internal to worker/stage. Threads and errors: as in model.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/stage/model/layers.h"
#include "worker/stage/model/model.h"
#include "worker/stage/model/moe.h"
#include "worker/stage/model/rotary.h"

namespace longhaul::worker {

class Llama final : public Model {
 public:
  // `has_experts`: family moe.
  Llama(const StageOptions& options, bool has_experts, const RankGroup* group);
  at::Tensor Logits(const at::Tensor& x) const override;
  // False with experts: how many tokens an expert gets is known only when the pass runs.
  bool can_be_recorded() const override { return !has_experts_; }
  void EndStep() const override;
  void ForgetStep() const override;
  std::vector<std::vector<int64_t>> TokensOfExperts() const override;

 private:
  // Norms that the model does not have have undefined weights.
  struct Block {
    const Rotary* rotary = nullptr;  // turns queries and keys; null: nothing does
    Scoring scoring;
    RmsNorm before_attention, after_attention;
    Linear queries, keys, values, attention_out;
    RmsNorm query_norm, key_norm;
    RmsNorm before_mlp, after_mlp;
    Linear gate, up, down;  // the MLP, unless there are experts
    std::optional<Mixture> experts;
  };
  Block MakeBlock(const StageOptions& options, uint32_t layer);
  at::Tensor Embed(const at::Tensor& ids, const Layout& layout) const override;
  int64_t FirstLogit() const override { return head_.first_row; }
  at::Tensor RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const override;
  at::Tensor Attention(size_t block, const at::Tensor& x, const Layout& layout) const;
  // The output of a projection as heads, (rows, tokens, heads, channels of a head), behind `norm`
  // if the model has it.
  at::Tensor NormedHeads(const at::Tensor& projected, const RmsNorm& norm) const;
  at::Tensor Mlp(const Block& layers, const at::Tensor& normed) const;
  // The residual stream `x` with `part` added, the output of attention or of the MLP.
  at::Tensor Add(const at::Tensor& x, const at::Tensor& part, const RmsNorm& norm) const;

  const ModelSpec model_;
  const int64_t head_channels_;
  const bool has_experts_;
  std::vector<Block> blocks_;
  // Set if the stage has blocks; `windowed_rotary_` for models whose windows have embeddings of
  // their own.
  std::optional<Rotary> rotary_, windowed_rotary_;
  Embedding tokens_;    // first stage
  RmsNorm final_norm_;  // last stage
  Head head_;
};

}  // namespace longhaul::worker
