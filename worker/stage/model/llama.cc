#include "worker/stage/model/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>

#include <string>

namespace longhaul::worker {

Llama::Llama(const StageOptions& options, bool has_experts, const RankGroup* group)
    : Model(options, group),
      head_channels_(options.model.HeadChannels()),
      has_experts_(has_experts) {
  const ModelSpec& model = options.model;
  const std::string tokens = "model.embed_tokens.weight";
  if (options.first) tokens_ = maker().MakeEmbedding(tokens);
  for (uint32_t layer = options.first_layer; layer < options.first_layer + options.layers;
       ++layer) {
    blocks_.push_back(MakeBlock(options, layer));
  }
  if (!blocks_.empty()) {
    rotary_.emplace(model, blocks_[0].queries.weight.device());
  }
  if (!options.last) return;
  final_norm_ = maker().MakeRmsNorm("model.norm", model.norm_epsilon);
  head_ = maker().MakeHead("lm_head", tokens, tokens_);
}

Llama::Block Llama::MakeBlock(const StageOptions& options, uint32_t layer) {
  const ModelSpec& model = options.model;
  LayerMaker& make = maker();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  Block block;
  block.turns = model.HasRotary(layer);
  block.norm_1 = make.MakeRmsNorm(prefix + "input_layernorm", model.norm_epsilon);
  block.queries = make.MakeLinear(prefix + "self_attn.q_proj");
  block.keys = make.MakeLinear(prefix + "self_attn.k_proj");
  block.values = make.MakeLinear(prefix + "self_attn.v_proj");
  block.attention_out = make.MakeLinear(prefix + "self_attn.o_proj");
  if (model.qk_norm) {
    block.query_norm = make.MakeRmsNorm(prefix + "self_attn.q_norm", model.norm_epsilon);
    block.key_norm = make.MakeRmsNorm(prefix + "self_attn.k_norm", model.norm_epsilon);
  }
  block.norm_2 = make.MakeRmsNorm(prefix + "post_attention_layernorm", model.norm_epsilon);
  if (has_experts_) {
    block.experts.emplace(make, options, prefix + "mlp.", group());
    return block;
  }
  block.gate = make.MakeLinear(prefix + "mlp.gate_proj");
  block.up = make.MakeLinear(prefix + "mlp.up_proj");
  block.down = make.MakeLinear(prefix + "mlp.down_proj");
  return block;
}

// Positions are those in the row: what attention sees of two tokens is how far they are apart.
at::Tensor Llama::Embed(const at::Tensor& ids, const Layout& /*layout*/) const {
  return tokens_(ids);
}

at::Tensor Llama::Attention(size_t block, const at::Tensor& x, const Layout& layout) const {
  const Block& layers = blocks_[block];
  const int64_t rows = x.size(0), tokens = x.size(1);
  const auto heads = [&](const Linear& projection) {
    return projection(x).view({rows, tokens, -1, head_channels_});
  };
  const auto turned = [&](const Linear& projection, const RmsNorm& norm) {
    at::Tensor of_heads = heads(projection);
    if (norm.weight.defined()) of_heads = norm(of_heads.to(at::kFloat));
    if (layers.turns) of_heads = rotary_->Turn(of_heads, layout.first);
    return of_heads.to(compute_type()).transpose(1, 2);
  };
  // One statement each: the order of forward is that in which backward sums, and so part of the
  // result.
  const at::Tensor queries = turned(layers.queries, layers.query_norm);
  const at::Tensor new_keys = turned(layers.keys, layers.key_norm);
  const at::Tensor new_values = heads(layers.values).transpose(1, 2);
  auto [keys, values] = layout.WithPast(block, {new_keys, new_values});
  // Each head of keys and values serves several of queries. Of a GPU's kernels only that for bf16
  // without a mask knows this; without a kernel whole score matrices would stand in memory.
  const int64_t group = queries.size(1) / keys.size(1);
  if (group > 1 && x.is_cuda() && (compute_type() == at::kFloat || layout.mask)) {
    keys = keys.repeat_interleave(group, 1);
    values = values.repeat_interleave(group, 1);
  }
  const at::Tensor mixed = at::scaled_dot_product_attention(
      queries, keys, values, layout.mask, /*dropout_p=*/0.0, layout.causal(), /*scale=*/{},
      /*enable_gqa=*/keys.size(1) != queries.size(1));
  return layers.attention_out(mixed.transpose(1, 2).flatten(2));
}

at::Tensor Llama::RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const {
  const Block& layers = blocks_[block];
  // What several products read is cast once: each would do it by itself, and autograd keep all.
  const at::Tensor middle = x + Leave(Attention(block, Enter(layers.norm_1, x), layout));
  if (layers.experts) {
    const at::Tensor own = ToExperts(layers.norm_2(middle).to(compute_type()));
    return middle + OfExperts((*layers.experts)(own));
  }
  const at::Tensor normed = Enter(layers.norm_2, middle);
  const at::Tensor gate = at::silu(layers.gate(normed));
  return middle + Leave(layers.down(gate * layers.up(normed)));
}

void Llama::EndStep() const {
  for (const Block& block : blocks_) {
    if (block.experts) block.experts->EndStep();
  }
}

void Llama::ForgetStep() const {
  for (const Block& block : blocks_) {
    if (block.experts) block.experts->ForgetStep();
  }
}

std::vector<std::vector<int64_t>> Llama::TokensOfExperts() const {
  std::vector<std::vector<int64_t>> of_blocks;
  for (const Block& block : blocks_) {
    if (block.experts) of_blocks.push_back(block.experts->tokens());
  }
  return of_blocks;
}

at::Tensor Llama::Logits(const at::Tensor& x) const {
  return head_(Last(final_norm_, x));
}

}  // namespace longhaul::worker
