#include "tests/parity/worker/dpo_reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace longhaul::testing {
namespace {

using at::Tensor;

class Llama {
 public:
  Llama(const ModelSpec& model, const Values& values) : model_(model) {
    for (const auto& [name, numbers] : values) {
      Tensor tensor = at::tensor(std::vector<double>(numbers.begin(), numbers.end()), at::kDouble);
      if (name.find(".lora_") != std::string::npos) tensor.set_requires_grad(true);
      all_[name] = tensor;
    }
  }

  // The log-probability of the targets that count.
  Tensor LogProbability(const Answer& answer, bool adapted) const {
    const auto tokens = static_cast<int64_t>(answer.tokens.size());
    const Tensor ids = at::tensor(std::vector<int64_t>(answer.tokens.begin(), answer.tokens.end()));
    const Tensor log_shares =
        at::log_softmax(Logits(ids.narrow(0, 0, tokens - 1), adapted), /*dim=*/1);
    Tensor sum = at::zeros({}, at::kDouble);
    for (int64_t i = 1; i < tokens; ++i) {
      if (!answer.counts[static_cast<size_t>(i)]) continue;
      sum = sum + log_shares[i - 1][ids[i].item<int64_t>()];
    }
    return sum;
  }
  const std::map<std::string, Tensor>& all() const { return all_; }

 private:
  Tensor Matrix(const std::string& name) const {
    const Tensor& flat = all_.at(name);
    const bool is_b = name.ends_with("lora_B.weight");
    const int64_t rank = model_.lora->rank;
    if (is_b) return flat.view({-1, rank});
    if (name.ends_with("lora_A.weight")) return flat.view({rank, -1});
    if (name.ends_with("down_proj.weight")) return flat.view({-1, model_.intermediate});
    return flat.view({-1, model_.hidden});
  }
  Tensor Linear(const std::string& module, const Tensor& x, bool adapted) const {
    Tensor y = x.matmul(Matrix(module + ".weight").t());
    if (const auto bias = all_.find(module + ".bias"); bias != all_.end()) y = y + bias->second;
    if (!adapted || !all_.contains(module + ".lora_A.weight")) return y;
    const Tensor low = x.matmul(Matrix(module + ".lora_A.weight").t());
    const double scale = model_.lora->alpha / model_.lora->rank;
    return y + scale * low.matmul(Matrix(module + ".lora_B.weight").t());
  }
  Tensor Norm(const std::string& name, const Tensor& x) const {
    const Tensor mean = (x * x).mean(-1, /*keepdim=*/true);
    return x * at::rsqrt(mean + model_.norm_epsilon) * all_.at(name + ".weight");
  }
  // (tokens, heads x channels) to (heads, tokens, channels).
  static Tensor Split(const Tensor& x, int64_t heads) {
    return x.view({x.size(0), heads, -1}).transpose(0, 1);
  }
  Tensor Turn(const Tensor& x) const {
    const int64_t tokens = x.size(1), channels = x.size(2);
    const Tensor exponents = at::arange(0, channels, 2, at::kDouble) / channels;
    const Tensor angles =
        at::outer(at::arange(tokens, at::kDouble), at::pow(model_.rope_theta, -exponents))
            .repeat({1, 2});
    const std::vector<Tensor> halves = x.chunk(2, 2);
    return x * angles.cos() + at::cat({-halves[1], halves[0]}, 2) * angles.sin();
  }
  Tensor Attend(const std::string& block, const Tensor& x, bool adapted) const {
    const int64_t heads = model_.heads, kv_heads = model_.kv_heads, tokens = x.size(0);
    const std::string name = block + ".self_attn.";
    const Tensor q = Turn(Split(Linear(name + "q_proj", x, adapted), heads));
    const Tensor k = Turn(Split(Linear(name + "k_proj", x, adapted), kv_heads))
                         .repeat_interleave(heads / kv_heads, 0);
    const Tensor v =
        Split(Linear(name + "v_proj", x, adapted), kv_heads).repeat_interleave(heads / kv_heads, 0);
    const double infinity = std::numeric_limits<double>::infinity();
    const Tensor later = at::full({tokens, tokens}, -infinity, at::kDouble).triu(1);
    const Tensor scores = q.matmul(k.transpose(1, 2)) / std::sqrt(q.size(2)) + later;
    const Tensor mixed = at::softmax(scores, -1).matmul(v);
    return Linear(name + "o_proj", mixed.transpose(0, 1).reshape({tokens, -1}), adapted);
  }
  Tensor Logits(const Tensor& ids, bool adapted) const {
    Tensor x = Matrix("model.embed_tokens.weight").index_select(0, ids);
    for (uint32_t layer = 0; layer < model_.layers; ++layer) {
      const std::string block = "model.layers." + std::to_string(layer);
      x = x + Attend(block, Norm(block + ".input_layernorm", x), adapted);
      const Tensor inner = Norm(block + ".post_attention_layernorm", x);
      const Tensor gate = at::silu(Linear(block + ".mlp.gate_proj", inner, adapted));
      x = x + Linear(block + ".mlp.down_proj",
                     gate * Linear(block + ".mlp.up_proj", inner, adapted), adapted);
    }
    return Norm("model.norm", x).matmul(Matrix("lm_head.weight").t());
  }

  const ModelSpec& model_;
  std::map<std::string, Tensor> all_;
};

}  // namespace

DpoResult DpoByHand(const ModelSpec& model, const DpoSpec& dpo, const Values& values,
                    const std::vector<Pair>& pairs) {
  const Llama llama(model, values);
  DpoResult result;
  for (const Pair& pair : pairs) {
    const auto gain = [&](const Answer& answer) {
      Tensor without;
      {
        const at::NoGradGuard no_grad;
        without = llama.LogProbability(answer, false);
      }
      return llama.LogProbability(answer, true) - without;
    };
    const Tensor margin = dpo.beta * (gain(pair.chosen) - gain(pair.rejected));
    const Tensor loss = -((1 - dpo.label_smoothing) * at::log_sigmoid(margin) +
                          dpo.label_smoothing * at::log_sigmoid(-margin)) /
                        static_cast<double>(pairs.size());
    loss.backward();
    result.loss += loss.item<double>();
    result.margin += margin.item<double>() / static_cast<double>(pairs.size());
    result.accuracy += (margin.item<double>() > 0 ? 1.0 : 0.0) / static_cast<double>(pairs.size());
  }
  for (const auto& [name, value] : llama.all()) {
    if (!value.requires_grad()) continue;
    const Tensor gradient = value.grad().contiguous();
    const double* const data = gradient.const_data_ptr<double>();
    result.gradients[name] = {data, data + gradient.numel()};
  }
  return result;
}

}  // namespace longhaul::testing
