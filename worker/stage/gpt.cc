#include "worker/stage/gpt.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "worker/stage/init.h"

namespace longhaul::worker {
namespace {

constexpr double kInitialDeviation = 0.02;

// CPU autocast to bf16 while it lives. Without the weight cache: it would keep this forward's casts
// past the next optimizer step.
class Autocast {
 public:
  explicit Autocast(bool bf16) : was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, bf16);
    if (!bf16) return;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, was_enabled_); }

 private:
  const bool was_enabled_;
};

// Collects parameters in the model's order.
class ParameterMaker {
 public:
  explicit ParameterMaker(uint64_t seed) : seed_(seed) {}

  void Normal(std::string name, at::IntArrayRef shape, double standard_deviation) {
    at::Tensor value = at::zeros(shape);
    FillNormal(seed_, name, standard_deviation,
               std::span(value.data_ptr<float>(), static_cast<size_t>(value.numel())));
    Add(std::move(name), std::move(value));
  }
  void Linear(const std::string& name, int64_t outputs, int64_t inputs, double deviation) {
    Normal(name + ".weight", {outputs, inputs}, deviation);
    Add(name + ".bias", at::zeros({outputs}));
  }
  void Norm(const std::string& name, int64_t channels) {
    Add(name + ".weight", at::ones({channels}));
    Add(name + ".bias", at::zeros({channels}));
  }
  std::vector<Parameter> Take() { return std::move(parameters_); }

 private:
  void Add(std::string name, at::Tensor value) {
    value.set_requires_grad(true);
    parameters_.push_back({std::move(name), std::move(value)});
  }
  const uint64_t seed_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::vector<Parameter> MakeParameters(const StageOptions& options) {
  const int64_t hidden = options.model.hidden;
  // Each block adds two terms to the residual stream, whose variance must not grow with depth.
  const double residual_deviation = kInitialDeviation / std::sqrt(2.0 * options.model.layers);
  ParameterMaker make(options.train.seed);
  if (options.first) {
    make.Normal("wte", {options.vocabulary, hidden}, kInitialDeviation);
    make.Normal("wpe", {options.model.context, hidden}, kInitialDeviation);
  }
  for (uint32_t layer = options.first_layer; layer < options.first_layer + options.layers;
       ++layer) {
    const std::string prefix = fmt::format("h.{}.", layer);
    make.Norm(prefix + "ln_1", hidden);
    make.Linear(prefix + "attn.qkv", 3 * hidden, hidden, kInitialDeviation);
    make.Linear(prefix + "attn.proj", hidden, hidden, residual_deviation);
    make.Norm(prefix + "ln_2", hidden);
    make.Linear(prefix + "mlp.fc", 4 * hidden, hidden, kInitialDeviation);
    make.Linear(prefix + "mlp.proj", hidden, 4 * hidden, residual_deviation);
  }
  if (options.last) {
    make.Norm("ln_f", hidden);
    if (!options.model.tied) {
      make.Normal("lm_head.weight", {options.vocabulary, hidden}, kInitialDeviation);
    }
  }
  return make.Take();
}

Gpt::Gpt(const StageOptions& options)
    : hidden_(options.model.hidden),
      heads_(options.model.heads),
      bf16_(options.train.dtype == ComputeDtype::kBf16),
      parameters_(MakeParameters(options)) {
  std::unordered_map<std::string_view, at::Tensor> by_name;
  for (const Parameter& parameter : parameters_) by_name.emplace(parameter.name, parameter.value);
  const auto get = [&by_name](const std::string& name) {
    const auto it = by_name.find(name);
    LH_CHECK(it != by_name.end(), "{}", name);
    return it->second;
  };
  if (options.first) {
    wte_ = get("wte");
    wpe_ = get("wpe");
  }
  for (uint32_t layer = options.first_layer; layer < options.first_layer + options.layers;
       ++layer) {
    const std::string prefix = fmt::format("h.{}.", layer);
    blocks_.push_back({get(prefix + "ln_1.weight"), get(prefix + "ln_1.bias"),
                       get(prefix + "attn.qkv.weight"), get(prefix + "attn.qkv.bias"),
                       get(prefix + "attn.proj.weight"), get(prefix + "attn.proj.bias"),
                       get(prefix + "ln_2.weight"), get(prefix + "ln_2.bias"),
                       get(prefix + "mlp.fc.weight"), get(prefix + "mlp.fc.bias"),
                       get(prefix + "mlp.proj.weight"), get(prefix + "mlp.proj.bias")});
  }
  if (options.last) {
    ln_f_weight_ = get("ln_f.weight");
    ln_f_bias_ = get("ln_f.bias");
    head_weight_ = options.model.tied ? wte_ : get("lm_head.weight");
  }
}

at::Tensor Gpt::Attention(const Block& block, const at::Tensor& x) const {
  const int64_t rows = x.size(0), tokens = x.size(1);
  // (rows, tokens, 3, heads, channels of a head) -> three of (rows, heads, tokens, channels)
  const std::vector<at::Tensor> qkv = at::linear(x, block.qkv_weight, block.qkv_bias)
                                          .view({rows, tokens, 3, heads_, hidden_ / heads_})
                                          .permute({2, 0, 3, 1, 4})
                                          .unbind(0);
  const at::Tensor mixed = at::scaled_dot_product_attention(
      qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return at::linear(mixed.transpose(1, 2).reshape({rows, tokens, hidden_}), block.proj_weight,
                    block.proj_bias);
}

at::Tensor Gpt::RunBlock(const Block& block, const at::Tensor& x) const {
  const at::Tensor middle =
      x + Attention(block, at::layer_norm(x, {hidden_}, block.ln_1_weight, block.ln_1_bias));
  const at::Tensor normed = at::layer_norm(middle, {hidden_}, block.ln_2_weight, block.ln_2_bias);
  const at::Tensor inner = at::gelu(at::linear(normed, block.fc_weight, block.fc_bias), "tanh");
  return middle + at::linear(inner, block.mlp_proj_weight, block.mlp_proj_bias);
}

at::Tensor Gpt::Forward(const at::Tensor& input) const {
  const Autocast autocast(bf16_);
  at::Tensor x = wte_.defined() ? at::embedding(wte_, input) + wpe_ : input;
  for (const Block& block : blocks_) x = RunBlock(block, x);
  if (!head_weight_.defined()) return x;
  return at::linear(at::layer_norm(x, {hidden_}, ln_f_weight_, ln_f_bias_), head_weight_);
}

at::Tensor Gpt::Loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(at::kFloat),
                                targets.reshape({-1}));
}

}  // namespace longhaul::worker
