// Groups whose ranks have channels of their own (CAAT-Net, Sections 3 and 4), held against one
// process that simulates the ranks in float64: losses and the gradient of every parameter.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/worker/group_cases.h"

namespace longhaul::worker {
namespace {

StageOptions Options(ModelFamily family, uint32_t ranks, double shared) {
  StageOptions options = OptionsOf({.family = family, .ranks = ranks});
  if (family == ModelFamily::kLlama) options.model.kv_heads = 4;
  options.group.tensor = ranks;
  options.group.shared_channels = shared;
  return options;
}

// The whole model on simulated ranks, written without the product's layers.
class Reference {
 public:
  Reference(const StageOptions& options, const StageSnapshot& first_values)
      : options_(options),
        ranks_(options.group.tensor),
        shared_(std::lround(options.group.shared_channels * options.model.hidden)) {
    for (const NamedArray& array : first_values.parameters) {
      parameters_[array.name] = at::from_blob(const_cast<float*>(array.values.data()), array.shape)
                                    .to(at::kDouble)
                                    .set_requires_grad(true);
    }
  }
  virtual ~Reference() = default;

  double Loss(const Batch& batch) {
    const int64_t rows = options_.train.microbatch_size, tokens = options_.model.context;
    const at::Tensor ids =
        at::tensor(at::ArrayRef<int32_t>(batch.input().tokens.data(), batch.input().tokens.size()),
                   at::kLong)
            .view({rows, tokens});
    std::vector<at::Tensor> x(ranks_, Embed(ids));  // every rank's residual stream
    for (uint32_t layer = 0; layer < options_.layers; ++layer) RunBlock(&x, layer);
    std::vector<at::Tensor> logits;
    for (uint32_t r = 0; r < ranks_; ++r) {
      const int64_t vocabulary = P("lm_head.weight").size(0);
      const int64_t begin = vocabulary * r / ranks_, end = vocabulary * (r + 1) / ranks_;
      logits.push_back(LastNormed(x[r]).matmul(
          P("lm_head.weight").narrow(0, begin, end - begin).transpose(0, 1)));
    }
    const at::Tensor targets = at::tensor(
        at::ArrayRef<int32_t>(batch.input().targets.data(), batch.input().targets.size()),
        at::kLong);
    const at::Tensor loss =
        at::cross_entropy_loss(at::cat(logits, -1).flatten(0, 1), targets.view({-1}));
    (loss / options_.train.microbatches).backward();
    return loss.item<double>();
  }

  std::vector<float> Gradient(const std::string& name) {
    const at::Tensor gradient = P(name).grad().to(at::kFloat).contiguous();
    return {gradient.const_data_ptr<float>(), gradient.const_data_ptr<float>() + gradient.numel()};
  }

 protected:
  virtual at::Tensor Embed(const at::Tensor& ids) = 0;
  virtual void RunBlock(std::vector<at::Tensor>* x, uint32_t layer) = 0;
  virtual at::Tensor LastNormed(const at::Tensor& x) = 0;

  const ModelSpec& model() const { return options_.model; }
  const at::Tensor& P(const std::string& name) { return parameters_.at(name); }
  // This rank's part of `tensor`, cut into equal parts along `dimension`.
  at::Tensor PartOf(const at::Tensor& tensor, int64_t dimension, uint32_t rank) const {
    const int64_t each = tensor.size(dimension) / ranks_;
    return tensor.narrow(dimension, rank * each, each);
  }
  // A product with this rank's rows, or its columns.
  at::Tensor OfRows(const at::Tensor& y, const std::string& name, uint32_t rank) {
    return y.matmul(PartOf(P(name), 0, rank).transpose(0, 1));
  }
  at::Tensor OfColumns(const at::Tensor& y, const std::string& name, uint32_t rank) {
    return y.matmul(PartOf(P(name), 1, rank).transpose(0, 1));
  }
  // Adds what `branch` gives on each rank, of which the shared channels are summed; then `bias`,
  // where there is one, once.
  template <class Branch>
  void Add(std::vector<at::Tensor>* x, const Branch& branch, const at::Tensor& bias = {}) {
    std::vector<at::Tensor> outputs;
    at::Tensor sum;
    for (uint32_t r = 0; r < ranks_; ++r) {
      outputs.push_back(branch((*x)[r], r));
      const at::Tensor part = outputs[r].narrow(-1, 0, shared_);
      sum = r == 0 ? part : sum + part;
    }
    for (uint32_t r = 0; r < ranks_; ++r) {
      const int64_t own = options_.model.hidden - shared_;
      (*x)[r] = (*x)[r] + at::cat({sum, outputs[r].narrow(-1, shared_, own)}, -1);
      if (bias.defined()) (*x)[r] = (*x)[r] + bias;
    }
  }
  static at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true)
        .transpose(1, 2)
        .flatten(2);
  }

 private:
  const StageOptions options_;
  const uint32_t ranks_;
  const int64_t shared_;
  std::map<std::string, at::Tensor> parameters_;
};

class LlamaReference final : public Reference {
 public:
  using Reference::Reference;

 private:
  at::Tensor Embed(const at::Tensor& ids) override {
    return at::embedding(P("model.embed_tokens.weight"), ids);
  }
  void RunBlock(std::vector<at::Tensor>* x, uint32_t layer) override {
    const std::string name = fmt::format("model.layers.{}.", layer);
    Add(x, [&](const at::Tensor& own, uint32_t r) {
      return Attention(Normed(own, name + "input_layernorm.weight"), name + "self_attn.", r);
    });
    Add(x, [&](const at::Tensor& own, uint32_t r) {
      return Mlp(Normed(own, name + "post_attention_layernorm.weight"), name + "mlp.", r);
    });
  }
  at::Tensor LastNormed(const at::Tensor& x) override { return Normed(x, "model.norm.weight"); }

  at::Tensor Normed(const at::Tensor& x, const std::string& weight) {
    return x * (x.square().mean(-1, /*keepdim=*/true) + model().norm_epsilon).rsqrt() * P(weight);
  }
  at::Tensor Heads(const at::Tensor& y, const std::string& name, uint32_t rank) {
    const at::Tensor flat = OfRows(y, name + ".weight", rank) + PartOf(P(name + ".bias"), 0, rank);
    return flat.view({y.size(0), y.size(1), -1, model().HeadChannels()});
  }
  // Halves of a head's channels turn by angles that grow with the position.
  at::Tensor Turned(const at::Tensor& heads) const {
    const int64_t half = heads.size(3) / 2, tokens = heads.size(1);
    std::vector<double> angles;
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t i = 0; i < half; ++i) {
        angles.push_back(
            static_cast<double>(token) *
            std::pow(model().rope_theta, -static_cast<double>(i) / static_cast<double>(half)));
      }
    }
    const at::Tensor angle = at::tensor(angles, at::kDouble).view({tokens, 1, half});
    const at::Tensor a = heads.narrow(3, 0, half), b = heads.narrow(3, half, half);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, 3);
  }
  at::Tensor Attention(const at::Tensor& y, const std::string& name, uint32_t rank) {
    const at::Tensor q = Turned(Heads(y, name + "q_proj", rank)).transpose(1, 2);
    const at::Tensor k = Turned(Heads(y, name + "k_proj", rank)).transpose(1, 2);
    const at::Tensor v = Heads(y, name + "v_proj", rank).transpose(1, 2);
    return OfColumns(Attend(q, k, v), name + "o_proj.weight", rank);
  }
  at::Tensor Mlp(const at::Tensor& y, const std::string& name, uint32_t rank) {
    const at::Tensor gate = at::silu(OfRows(y, name + "gate_proj.weight", rank));
    return OfColumns(gate * OfRows(y, name + "up_proj.weight", rank), name + "down_proj.weight",
                     rank);
  }
};

// Biases that follow a sum are one vector for all ranks, as norms are.
class GptReference final : public Reference {
 public:
  using Reference::Reference;

 private:
  at::Tensor Embed(const at::Tensor& ids) override {
    return at::embedding(P("wte"), ids) + P("wpe");
  }
  void RunBlock(std::vector<at::Tensor>* x, uint32_t layer) override {
    const std::string name = fmt::format("h.{}.", layer);
    Add(
        x,
        [&](const at::Tensor& own, uint32_t r) {
          return Attention(Normed(own, name + "ln_1"), name + "attn.", r);
        },
        P(name + "attn.proj.bias"));
    Add(
        x,
        [&](const at::Tensor& own, uint32_t r) {
          const at::Tensor y = Normed(own, name + "ln_2");
          const at::Tensor inner =
              OfRows(y, name + "mlp.fc.weight", r) + PartOf(P(name + "mlp.fc.bias"), 0, r);
          return OfColumns(at::gelu(inner, "tanh"), name + "mlp.proj.weight", r);
        },
        P(name + "mlp.proj.bias"));
  }
  at::Tensor LastNormed(const at::Tensor& x) override { return Normed(x, "ln_f"); }

  at::Tensor Normed(const at::Tensor& x, const std::string& name) {
    const at::Tensor centred = x - x.mean(-1, /*keepdim=*/true);
    const at::Tensor variance = centred.square().mean(-1, /*keepdim=*/true);
    return centred * (variance + model().norm_epsilon).rsqrt() * P(name + ".weight") +
           P(name + ".bias");
  }
  at::Tensor Attention(const at::Tensor& y, const std::string& name, uint32_t rank) {
    std::vector<at::Tensor> qkv;
    for (int64_t i = 0; i < 3; ++i) {
      const at::Tensor weight = P(name + "qkv.weight").chunk(3, 0)[i];
      const at::Tensor bias = P(name + "qkv.bias").chunk(3, 0)[i];
      const at::Tensor flat =
          y.matmul(PartOf(weight, 0, rank).transpose(0, 1)) + PartOf(bias, 0, rank);
      qkv.push_back(flat.view({y.size(0), y.size(1), -1, model().HeadChannels()}).transpose(1, 2));
    }
    return OfColumns(Attend(qkv[0], qkv[1], qkv[2]), name + "proj.weight", rank);
  }
};

std::unique_ptr<Reference> ReferenceOf(const StageOptions& options, const StageSnapshot& first) {
  if (options.model.family == ModelFamily::kGpt) {
    return std::make_unique<GptReference>(options, first);
  }
  return std::make_unique<LlamaReference>(options, first);
}

struct Sharing {
  ModelFamily family = ModelFamily::kLlama;
  uint32_t ranks = 2;
  double shared = 1;
};
class Caat : public ::testing::TestWithParam<Sharing> {};

TEST_P(Caat, GradientsAreThoseOfSimulatedRanks) {
  const auto& [family, ranks, shared] = GetParam();
  const StageOptions options = Options(family, ranks, shared);
  const Computed got = OneStep(options, ranks);
  ASSERT_EQ(got.losses.size(), options.train.microbatches);
  const std::unique_ptr<Reference> reference = ReferenceOf(options, got.before);
  for (uint32_t m = 0; m < options.train.microbatches; ++m) {
    EXPECT_NEAR(got.losses[m], reference->Loss(Batch(options, static_cast<int>(10 + m))), 1e-5);
  }
  for (const NamedArray& moment : got.after.moments) {
    if (!moment.name.ends_with(".exp_avg")) continue;
    const std::string name = moment.name.substr(0, moment.name.rfind('.'));
    if (name.ends_with("k_proj.bias")) continue;  // nothing but rounding
    // After one step AdamW's first moment is a share of the gradient.
    std::vector<float> gradient = reference->Gradient(name);
    for (float& value : gradient) value *= 1 - static_cast<float>(options.train.optimizer.beta1);
    EXPECT_LE(RelativeError(moment.values, gradient), 1e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shares, Caat,
    ::testing::Values(Sharing{.shared = 1}, Sharing{.shared = 0.75}, Sharing{.shared = 0.5},
                      Sharing{.ranks = 4, .shared = 0.5}, Sharing{.ranks = 4, .shared = 0.25},
                      Sharing{.shared = 0}, Sharing{.ranks = 4, .shared = 0},
                      Sharing{ModelFamily::kGpt, 2, 1}, Sharing{ModelFamily::kGpt, 2, 0.5},
                      Sharing{ModelFamily::kGpt, 4, 0.25}, Sharing{ModelFamily::kGpt, 4, 0}),
    [](const auto& test) {
      return fmt::format("{}_{}_ranks_{}_percent", ToString(test.param.family), test.param.ranks,
                         std::lround(100 * test.param.shared));
    });

double RelativeErrorInBf16(const std::string& name, const Computed& got, const Computed& exact) {
  for (size_t i = 0; i < exact.after.moments.size(); ++i) {
    if (exact.after.moments[i].name != name) continue;
    return RelativeError(got.after.moments[i].values, exact.after.moments[i].values);
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// Gradients that ranks sum in bf16 are as near to those of fp32 as one model's in bf16.
TEST(CaatInBf16, GradientsAreNearThoseOfFp32) {
  const auto in_bf16 = [](StageOptions options) {
    options.train.dtype = ComputeDtype::kBf16;
    return options;
  };
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt}) {
    const StageOptions whole = Options(family, 2, 1), half = Options(family, 2, 0.5);
    const Computed exact_whole = OneStep(whole, 2), exact_half = OneStep(half, 2);
    const Computed got_whole = OneStep(in_bf16(whole), 2), got_half = OneStep(in_bf16(half), 2);
    for (const NamedArray& moment : exact_half.after.moments) {
      if (!moment.name.ends_with(".exp_avg") ||
          moment.name.find("k_proj.bias") != std::string::npos) {
        continue;
      }
      const double bound =
          std::max(1e-2, 1.5 * RelativeErrorInBf16(moment.name, got_whole, exact_whole));
      EXPECT_LE(RelativeErrorInBf16(moment.name, got_half, exact_half), bound) << moment.name;
    }
  }
}

// Bytes that two more blocks send, whatever embedding, head and losses send.
double SentByTwoBlocks(StageOptions options, ComputeDtype dtype) {
  options.train.dtype = dtype;
  std::vector<uint64_t> sent;
  for (const uint32_t layers : {2, 4}) {
    options.model.layers = options.layers = layers;
    auto stage = MakeWith(options, options.group.tensor).value();
    const uint64_t before = stage->collectives().sent.total();
    Computed computed;
    RunStep(*stage, options, 1, &computed);
    sent.push_back(stage->collectives().sent.total() - before);
  }
  return static_cast<double>(sent[1] - sent[0]);
}

// And the gradients of norms, once a step.
TEST(CaatBytes, HalfOfTheChannelsAreHalfOfTheBytes) {
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    const double all = SentByTwoBlocks(Options(ModelFamily::kLlama, 2, 1), dtype);
    const double half = SentByTwoBlocks(Options(ModelFamily::kLlama, 2, 0.5), dtype);
    EXPECT_GE(half / all, 0.5);
    EXPECT_LE(half / all, 0.52);
  }
}

// What ranks have alike stays alike to the bit: each of them has the same whole checkpoint.
TEST(CaatBiases, AreOneVectorForAllRanks) {
  const StageOptions options = Options(ModelFamily::kGpt, 4, 0.5);
  auto stage = MakeWith(options, 4).value();
  Computed computed;
  for (uint64_t step = 1; step <= 5; ++step) RunStep(*stage, options, step, &computed);
  const StageSnapshot half_way = stage->Snapshot().value();
  EXPECT_EQ(stage->parameter_count(), (*MakeWith(OptionsOf({}), 1))->parameter_count());
  auto resumed = MakeWith(options, 4).value();
  ASSERT_TRUE(resumed->Restore(half_way).ok());
  for (uint64_t step = 6; step <= 8; ++step) {
    Computed expected, got;
    RunStep(*stage, options, step, &expected);
    RunStep(*resumed, options, step, &got);
    EXPECT_EQ(got.losses, expected.losses) << step;
    EXPECT_EQ(got.squared_norm, expected.squared_norm) << step;
  }
}

// Channels that are not summed vary as much as those that are.
TEST(CaatInit, OutputsOfOwnChannelsAreScaled) {
  const StageSnapshot plain =
      (*MakeWith(Options(ModelFamily::kLlama, 4, 1), 4))->Snapshot().value();
  const StageSnapshot partial =
      (*MakeWith(Options(ModelFamily::kLlama, 4, 0.5), 4))->Snapshot().value();
  size_t scaled = 0;
  for (size_t i = 0; i < plain.parameters.size(); ++i) {
    const NamedArray &a = plain.parameters[i], &b = partial.parameters[i];
    const bool is_output =
        a.name.ends_with("o_proj.weight") || a.name.ends_with("down_proj.weight");
    scaled += is_output ? 1 : 0;
    for (size_t k = 0; k < a.values.size(); ++k) {
      const bool own = is_output && k >= a.values.size() / 2;
      ASSERT_EQ(b.values[k], own ? 2 * a.values[k] : a.values[k]) << a.name << " " << k;
    }
  }
  EXPECT_EQ(scaled, 6);
}

// A boundary has the shared channels once and every rank's own ones.
class CaatChain : public ::testing::TestWithParam<ModelFamily> {};

TEST_P(CaatChain, StagesGiveWhatOneStageGives) {
  const StageOptions whole = Options(GetParam(), 4, 0.25);
  const Computed expected = OneStep(whole, 4);
  std::vector<std::unique_ptr<Stage>> stages;
  for (uint32_t s = 0; s < 3; ++s) {
    StageOptions part = whole;
    part.first_layer = s;
    part.layers = 1;
    part.first = s == 0;
    part.last = s == 2;
    stages.push_back(MakeWith(part, 4).value());
  }
  for (uint32_t m = 0; m < whole.train.microbatches; ++m) {
    const Batch batch(whole, static_cast<int>(10 + m));
    Stage::Input input = batch.input();
    std::optional<BoundaryTensor> tensor;
    for (const auto& stage : stages) {
      if (tensor) input.activation = tensor->view;
      std::optional<BoundaryTensor> output = stage->Forward(Microbatch(m), input).value();
      if (output) {
        EXPECT_EQ(output->view.shape.channels, 16 + 4 * 48);
      }
      tensor = std::move(output);
    }
    EXPECT_NEAR(*stages[2]->Loss(Microbatch(m)), expected.losses[m], 1e-6);
    std::optional<BoundaryTensor> gradient;
    for (size_t s = 3; s-- > 0;) {
      gradient = stages[s]
                     ->Backward(Microbatch(m), gradient ? gradient->view : codec::TensorView{})
                     .value();
    }
  }
  double norm = 0;
  for (size_t s = 3; s-- > 0;) norm = stages[s]->AddSquaredGradientNorm(norm)->sum;
  EXPECT_NEAR(norm / expected.squared_norm, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, CaatChain,
                         ::testing::Values(ModelFamily::kLlama, ModelFamily::kGpt),
                         [](const auto& test) { return std::string(ToString(test.param)); });

}  // namespace
}  // namespace longhaul::worker
