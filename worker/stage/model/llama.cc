#include "worker/stage/model/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "worker/stage/device/torch_device.h"

namespace longhaul::worker {

Llama::Llama(const StageOptions& options, bool has_experts, const RankGroup* group)
    : Model(options, group),
      model_(options.model),
      head_channels_(options.model.HeadChannels()),
      has_experts_(has_experts) {
  const std::string tokens = "model.embed_tokens.weight";
  if (options.first) tokens_ = maker().MakeEmbedding(tokens);
  if (options.layers > 0) {
    const at::Device device = TorchDevice(options.device);
    rotary_.emplace(model_, device);
    if (model_.rope_theta_windowed > 0) windowed_rotary_.emplace(model_, device, /*windowed=*/true);
  }
  for (uint32_t layer = options.first_layer; layer < options.first_layer + options.layers;
       ++layer) {
    blocks_.push_back(MakeBlock(options, layer));
  }
  if (!options.last) return;
  final_norm_ = maker().MakeRmsNorm("model.norm", model_.norm_epsilon, model_.norms_from_one);
  head_ = maker().MakeHead("lm_head", tokens, tokens_);
}

Llama::Block Llama::MakeBlock(const StageOptions& options, uint32_t layer) {
  LayerMaker& make = maker();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const auto norm = [&](const char* name) {
    return make.MakeRmsNorm(prefix + name, model_.norm_epsilon, model_.norms_from_one);
  };
  Block block;
  const bool windowed = model_.HasWindow(layer);
  if (model_.HasRotary(layer)) {
    block.rotary = windowed && windowed_rotary_ ? &*windowed_rotary_ : &*rotary_;
  }
  block.scoring = {.cap = model_.attention_cap, .window = windowed ? model_.window : 0};
  if (model_.score_channels > 0)
    block.scoring.scale = 1 / std::sqrt(static_cast<double>(model_.score_channels));
  if (model_.norms != Norms::kPost) block.before_attention = norm("input_layernorm");
  block.queries = make.MakeLinear(prefix + "self_attn.q_proj");
  block.keys = make.MakeLinear(prefix + "self_attn.k_proj");
  block.values = make.MakeLinear(prefix + "self_attn.v_proj");
  block.attention_out = make.MakeLinear(prefix + "self_attn.o_proj");
  if (model_.qk_norm) {
    block.query_norm = norm("self_attn.q_norm");
    block.key_norm = norm("self_attn.k_norm");
  }
  if (model_.norms == Norms::kPre) {
    block.before_mlp = norm("post_attention_layernorm");
  } else {
    block.after_attention = norm("post_attention_layernorm");
  }
  if (model_.norms == Norms::kBoth) block.before_mlp = norm("pre_feedforward_layernorm");
  if (has_experts_) {
    block.experts.emplace(make, options, prefix + "mlp.", group());
  } else {
    block.gate = make.MakeLinear(prefix + "mlp.gate_proj");
    block.up = make.MakeLinear(prefix + "mlp.up_proj");
    block.down = make.MakeLinear(prefix + "mlp.down_proj");
  }
  if (model_.norms != Norms::kPre) block.after_mlp = norm("post_feedforward_layernorm");
  return block;
}

// Positions are those in the row: what attention sees of two tokens is how far they are apart.
at::Tensor Llama::Embed(const at::Tensor& ids, const Layout& /*layout*/) const {
  const at::Tensor embedded = tokens_(ids);
  return model_.scale_embedding ? embedded * std::sqrt(static_cast<double>(model_.hidden))
                                : embedded;
}

at::Tensor Llama::NormedHeads(const at::Tensor& projected, const RmsNorm& norm) const {
  const std::vector<int64_t> of_heads = {projected.size(0), projected.size(1), -1, head_channels_};
  if (!norm.weight.defined()) return projected.view(of_heads);
  if (!model_.qk_norm_whole) return norm(projected.view(of_heads).to(at::kFloat));
  if (group() == nullptr) return norm(projected.to(at::kFloat)).view(of_heads);
  // The norm is over the channels of all ranks. Heads that several ranks hold count that often in
  // the sum and in the number of channels, so the mean is that of the whole model.
  const at::Tensor x = projected.to(at::kFloat);
  const at::Tensor sum = group()->SumBothWays(x.square().sum(-1, /*keepdim=*/true));
  const auto channels = static_cast<double>(x.size(-1) * ranks());
  return (x * (sum / channels + norm.epsilon).rsqrt() * norm.Factor()).view(of_heads);
}

at::Tensor Llama::Attention(size_t block, const at::Tensor& x, const Layout& layout) const {
  const Block& layers = blocks_[block];
  const int64_t rows = x.size(0), tokens = x.size(1);
  const auto turned = [&](const Linear& projection, const RmsNorm& norm) {
    at::Tensor of_heads = NormedHeads(projection(x), norm);
    if (layers.rotary != nullptr) of_heads = layers.rotary->Turn(of_heads, layout.first);
    return of_heads.to(compute_type()).transpose(1, 2);
  };
  // One statement each: the order of forward is that in which backward sums, and so part of the
  // result.
  const at::Tensor queries = turned(layers.queries, layers.query_norm);
  const at::Tensor new_keys = turned(layers.keys, layers.key_norm);
  const at::Tensor new_values =
      layers.values(x).view({rows, tokens, -1, head_channels_}).transpose(1, 2);
  const auto [keys, values] = layout.WithPast(block, {new_keys, new_values});
  const at::Tensor mixed = layout.sight.Attend(queries, keys, values, layers.scoring);
  return layers.attention_out(mixed.transpose(1, 2).flatten(2));
}

at::Tensor Llama::Mlp(const Block& layers, const at::Tensor& normed) const {
  const at::Tensor gate = layers.gate(normed);
  const at::Tensor opened =
      model_.activation == Activation::kGelu ? at::gelu(gate, "tanh") : at::silu(gate);
  return layers.down(opened * layers.up(normed));
}

at::Tensor Llama::Add(const at::Tensor& x, const at::Tensor& part, const RmsNorm& norm) const {
  if (!norm.weight.defined()) return x + part;
  return x + norm(part.to(at::kFloat));
}

at::Tensor Llama::RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const {
  const Block& layers = blocks_[block];
  // What several products read is cast once: each would do it by itself, and autograd keep all.
  const at::Tensor middle =
      Add(x, Leave(Attention(block, Enter(layers.before_attention, x), layout)),
          layers.after_attention);
  if (layers.experts) {
    const at::Tensor own = ToExperts(layers.before_mlp(middle).to(compute_type()));
    return Add(middle, OfExperts((*layers.experts)(own)), layers.after_mlp);
  }
  return Add(middle, Leave(Mlp(layers, Enter(layers.before_mlp, middle))), layers.after_mlp);
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
  const at::Tensor logits = head_(Last(final_norm_, x));
  if (model_.logit_cap == 0) return logits;
  return (logits / model_.logit_cap).tanh() * model_.logit_cap;
}

}  // namespace longhaul::worker
