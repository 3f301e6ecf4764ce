#include "worker/stage/model/gpt.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include <string>
#include <utility>

namespace longhaul::worker {

Gpt::Gpt(const StageOptions& options, const RankGroup* group)
    : Model(options, group),
      heads_(options.model.heads / ranks()),
      head_channels_(options.model.HeadChannels()) {
  LayerMaker& make = maker();
  const double epsilon = options.model.norm_epsilon;
  if (options.first) {
    tokens_ = make.MakeEmbedding("wte");
    positions_.weight = make.MakeRows("wpe");
  }
  for (uint32_t layer = options.first_layer; layer < options.first_layer + options.layers;
       ++layer) {
    const std::string h = fmt::format("h.{}.", layer);
    Block block;
    block.norm_1 = make.MakeLayerNorm(h + "ln_1", epsilon);
    block.qkv = make.MakeLinear(h + "attn.qkv");
    block.attention_out = make.MakeLinear(h + "attn.proj");
    block.norm_2 = make.MakeLayerNorm(h + "ln_2", epsilon);
    block.mlp_in = make.MakeLinear(h + "mlp.fc");
    block.mlp_out = make.MakeLinear(h + "mlp.proj");
    blocks_.push_back(std::move(block));
  }
  if (!options.last) return;
  final_norm_ = make.MakeLayerNorm("ln_f", epsilon);
  head_ = make.MakeHead("lm_head", "wte", tokens_);
}

at::Tensor Gpt::Embed(const at::Tensor& ids, const Layout& layout) const {
  if (layout.positions.defined()) return tokens_(ids) + positions_(layout.positions);
  if (ids.size(1) == positions_.weight.size(0)) return tokens_(ids) + positions_.weight;
  return tokens_(ids) + positions_.weight.narrow(0, layout.first, ids.size(1));
}

at::Tensor Gpt::Attention(size_t block, const at::Tensor& x, const Layout& layout) const {
  const Block& layers = blocks_[block];
  const int64_t rows = x.size(0), tokens = x.size(1);
  // (rows, tokens, 3, heads, channels of a head) -> three of (rows, heads, tokens, channels)
  const std::vector<at::Tensor> qkv = layers.qkv(x)
                                          .view({rows, tokens, 3, heads_, head_channels_})
                                          .permute({2, 0, 3, 1, 4})
                                          .unbind(0);
  const KeysAndValues all = layout.WithPast(block, {qkv[1], qkv[2]});
  const at::Tensor mixed = layout.sight.Attend(qkv[0], all.keys, all.values, {});
  return layers.attention_out(
      mixed.transpose(1, 2).reshape({rows, tokens, heads_ * head_channels_}));
}

at::Tensor Gpt::RunBlock(size_t block, const at::Tensor& x, const Layout& layout) const {
  const Block& layers = blocks_[block];
  const at::Tensor middle = x + Leave(Attention(block, Enter(layers.norm_1, x), layout));
  const at::Tensor inner = layers.mlp_in(Enter(layers.norm_2, middle));
  return middle + Leave(layers.mlp_out(at::gelu(inner, "tanh")));
}

at::Tensor Gpt::Logits(const at::Tensor& x) const {
  return head_(Last(final_norm_, x));
}

}  // namespace longhaul::worker
