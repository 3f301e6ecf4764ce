#include "tests/support/reference_loop.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "run/tokens/token_file.h"
#include "tests/support/reference_optimizer.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/model.h"

namespace longhaul::testing {
namespace {

using at::Tensor;

struct Batch {
  Tensor inputs, targets;
};

class Reference {
 public:
  Reference(const RunSpec& spec, const TokenFile& tokens)
      : spec_(spec),
        tokens_(tokens),
        dtype_(spec.train.dtype == ComputeDtype::kBf16 ? at::kBFloat16 : at::kFloat),
        parameters_(worker::Model::Create(Options(spec, tokens))->parameters()),
        optimizer_(spec.train, Trained(parameters_)) {
    for (const worker::Parameter& parameter : parameters_) {
      by_name_[parameter.name] = parameter.value;
    }
  }

  void TrainStep(uint64_t step, uint32_t microbatches, ReferenceRun* run) {
    const std::vector<Tensor> newest = Values();
    if (TraitsOf(spec_.pipeline.schedule).overlaps_steps && !older_.empty()) SetValues(older_);
    double sum = 0;
    for (uint32_t m = 0; m < microbatches; ++m) {
      const Tensor loss = Loss(TrainingBatch(read_++));
      const Tensor of_experts = std::exchange(auxiliary_, {});
      ((of_experts.defined() ? loss + of_experts : loss) * (1.0 / microbatches)).backward();
      sum += loss.item<float>();
    }
    SetValues(newest);
    older_ = newest;
    const double squared_norm = optimizer_.Step(step);
    for (auto& [name, loads] : std::exchange(loads_, {})) {
      P(name).detach().add_((loads.mean() - loads).sign() * spec_.model.balance_rate);
    }
    for (const worker::Parameter& parameter : parameters_) parameter.value.mutable_grad().reset();
    run->losses.push_back(sum / microbatches);
    run->squared_gradient_norms.push_back(squared_norm);
  }

  // Over whole microbatches of windows that are spread evenly over the validation text; nullopt
  // where that has no window.
  std::optional<double> Validate() const {
    const at::NoGradGuard no_grad;
    const uint64_t rows = spec_.train.microbatch_size;
    const uint64_t windows = tokens_.ValidationWindows(spec_.model.context);
    if (windows == 0) return std::nullopt;
    const uint64_t batches =
        std::max<uint64_t>(1, std::min<uint64_t>(spec_.validation.samples, windows) / rows);
    double sum = 0;
    for (uint64_t batch = 0; batch < batches; ++batch) {
      const Batch tokens = ReadBatch([&](uint64_t row, auto inputs, auto targets) {
        tokens_.ReadValidationWindow((batch * rows + row) * windows / (batches * rows),
                                     spec_.model.context, inputs, targets);
      });
      sum += Loss(tokens).item<float>();
    }
    return sum / static_cast<double>(batches);
  }

 private:
  static worker::StageOptions Options(const RunSpec& spec, const TokenFile& tokens) {
    worker::StageOptions options;
    options.model = spec.model;
    options.train = spec.train;
    options.vocabulary = tokens.info().vocabulary;
    options.layers = spec.model.layers;
    return options;
  }

  // All but the biases that balance experts, which no gradient moves.
  static std::vector<ReferenceParameter> Trained(const std::vector<worker::Parameter>& all) {
    std::vector<ReferenceParameter> trained;
    for (const worker::Parameter& parameter : all) {
      if (parameter.balances) continue;
      trained.push_back({parameter.name, parameter.value, parameter.block_matrices});
    }
    return trained;
  }

  template <class ReadRow>
  Batch ReadBatch(ReadRow read_row) const {
    const int64_t rows = spec_.train.microbatch_size, context = spec_.model.context;
    const Tensor inputs = at::empty({rows, context}, at::kInt);
    const Tensor targets = at::empty({rows, context}, at::kInt);
    const auto row_of = [&](const Tensor& tensor, int64_t row) {
      return std::span(tensor.data_ptr<int32_t>() + row * context, static_cast<size_t>(context));
    };
    for (int64_t row = 0; row < rows; ++row) {
      read_row(static_cast<uint64_t>(row), row_of(inputs, row), row_of(targets, row));
    }
    return {inputs.to(at::kLong), targets.to(at::kLong)};
  }

  Batch TrainingBatch(uint64_t global_microbatch) const {
    const uint32_t context = spec_.model.context;
    const uint64_t windows = tokens_.TrainingWindows(context);
    return ReadBatch([&](uint64_t row, auto inputs, auto targets) {
      const uint64_t k = global_microbatch * spec_.train.microbatch_size + row;
      tokens_.ReadTrainingWindow(TrainingWindowOf(spec_.data.seed, k, windows), context, inputs,
                                 targets);
    });
  }

  const Tensor& P(const std::string& name) const { return by_name_.at(name); }
  Tensor LayerNorm(const std::string& name, const Tensor& x) const {
    return at::layer_norm(x, {x.size(-1)}, P(name + ".weight"), P(name + ".bias"),
                          spec_.model.norm_epsilon);
  }
  Tensor RmsNorm(const std::string& name, const Tensor& x) const {
    return at::rms_norm(x, {x.size(-1)}, P(name + ".weight"), spec_.model.norm_epsilon);
  }
  // With a bias where there is one, whose gradient is a sum in fp32; autograd's is in bf16.
  Tensor Linear(const std::string& name, const Tensor& x) const {
    const auto found = by_name_.find(name + ".bias");
    if (found == by_name_.end()) return at::linear(x, P(name + ".weight"));
    const Tensor& bias = found->second;
    Tensor y = at::linear(x, P(name + ".weight"), bias.detach());
    if (!y.requires_grad()) return y;
    y.register_hook([bias](const Tensor& gradient) {
      const Tensor sum = gradient.reshape({-1, gradient.size(-1)}).to(at::kFloat).sum(0);
      Tensor& total = bias.mutable_grad();
      total = total.defined() ? total + sum : sum;
    });
    return y;
  }
  // (rows, tokens, heads x channels) -> (rows, heads, tokens, channels)
  static Tensor SplitHeads(const Tensor& x, int64_t heads) {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  }

  Tensor Loss(const Batch& batch) const {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, dtype_ == at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
    const Tensor logits = Logits(batch.inputs);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}).to(at::kFloat),
                                  batch.targets.view({-1}));
  }

  Tensor Logits(const Tensor& ids) const {
    return spec_.model.family == ModelFamily::kGpt ? GptLogits(ids) : LlamaLogits(ids);
  }

  Tensor GptLogits(const Tensor& ids) const {
    const int64_t heads = spec_.model.heads;
    Tensor x = at::embedding(P("wte"), ids) + P("wpe");
    for (uint32_t layer = 0; layer < spec_.model.layers; ++layer) {
      const std::string h = "h." + std::to_string(layer);
      const std::vector<Tensor> qkv =
          Linear(h + ".attn.qkv", LayerNorm(h + ".ln_1", x)).chunk(3, /*dim=*/2);
      const Tensor attended =
          at::scaled_dot_product_attention(SplitHeads(qkv[0], heads), SplitHeads(qkv[1], heads),
                                           SplitHeads(qkv[2], heads), {}, 0.0, true);
      x = x + Linear(h + ".attn.proj", attended.transpose(1, 2).flatten(2));
      x = x + Linear(h + ".mlp.proj",
                     at::gelu(Linear(h + ".mlp.fc", LayerNorm(h + ".ln_2", x)), "tanh"));
    }
    return at::linear(LayerNorm("ln_f", x), P(spec_.model.tied ? "wte" : "lm_head.weight"));
  }

  // Frequencies of the pairs of a head's channels, in radians a position; as in transformers'
  // modeling_rope_utils.py.
  Tensor Frequencies(int64_t channels) const {
    const ModelSpec& model = spec_.model;
    const Tensor exponents = at::arange(0, channels, 2, at::kDouble) / channels;
    const Tensor usual = at::pow(model.rope_theta, -exponents);
    if (model.rope_scaling == RopeScaling::kNone) return usual;
    const Tensor stretched = usual / model.rope_factor;
    if (model.rope_scaling == RopeScaling::kLinear) return stretched;
    const Tensor wavelengths = 2 * std::numbers::pi / usual;
    const double low = model.rope_low_frequency, high = model.rope_high_frequency;
    const double original = model.rope_original_context;
    const Tensor share = (original / wavelengths - low) / (high - low);
    const Tensor passage = (1 - share) * stretched + share * usual;
    return at::where(wavelengths > original / low, stretched,
                     at::where(wavelengths < original / high, usual, passage));
  }

  // (rows, heads, tokens, channels): x cos + rotate(x) sin, where rotate(a, b) = (-b, a) on halves.
  Tensor Rotate(const Tensor& x) const {
    const int64_t tokens = x.size(2), channels = x.size(3);
    const Tensor angles =
        at::outer(at::arange(tokens, at::kDouble), Frequencies(channels)).repeat({1, 2});
    const std::vector<Tensor> halves = x.chunk(2, 3);
    const Tensor rotated = at::cat({-halves[1], halves[0]}, 3);
    return (x * angles.cos().to(at::kFloat) + rotated * angles.sin().to(at::kFloat))
        .to(x.scalar_type());
  }

  // Queries or keys; `name` begins those of their parameters.
  Tensor Turned(const std::string& name, const Tensor& x, int64_t heads) const {
    const Tensor split = SplitHeads(Linear(name + "_proj", x), heads);
    if (!spec_.model.qk_norm) return Rotate(split);
    return Rotate(RmsNorm(name + "_norm", split.to(at::kFloat))).to(dtype_);
  }

  Tensor Mlp(const std::string& name, const Tensor& x) const {
    const Tensor gate = at::silu(Linear(name + "gate_proj", x));
    return Linear(name + "down_proj", gate * Linear(name + "up_proj", x));
  }

  // Each expert looks for the slots of tokens that are its own.
  Tensor Experts(const std::string& name, const Tensor& x) const {
    const ModelSpec& model = spec_.model;
    const int64_t slots = model.experts_per_token;
    const Tensor rows = x.flatten(0, 1);
    const Tensor full = rows.to(at::kFloat);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    const Tensor scores = at::linear(full, P(name + "gate.weight"));
    at::autocast::set_autocast_enabled(at::kCPU, dtype_ == at::kBFloat16);
    const Tensor probabilities = at::softmax(scores, 1);
    const bool biased = model.balance == Balance::kBias;
    const Tensor ranking = biased ? probabilities.detach() + P(name + "gate.balance").detach()
                                  : probabilities.detach();
    const Tensor chosen = std::get<1>(at::topk(ranking, slots, 1));
    Tensor weights = probabilities.gather(1, chosen);
    if (model.normalize_router) weights = weights / weights.sum(1, true);

    const Tensor of_slots = rows.unsqueeze(1).expand({-1, slots, -1}).reshape({-1, rows.size(1)});
    std::vector<Tensor> own, outputs, counts;
    for (uint32_t expert = 0; expert < model.experts; ++expert) {
      own.push_back(chosen.flatten().eq(static_cast<int64_t>(expert)).nonzero().flatten());
      outputs.push_back(Mlp(name + "experts." + std::to_string(expert) + ".",
                            of_slots.index_select(0, own.back())));
      counts.push_back(at::scalar_tensor(own.back().size(0), at::kFloat));
    }
    const Tensor given =
        at::cat(outputs).index_select(0, at::cat(own).argsort()).view({-1, slots, rows.size(1)});
    Tensor sum = at::zeros_like(rows, at::kFloat);
    for (int64_t slot = 0; slot < slots; ++slot) {
      sum = at::addcmul(sum, given.select(1, slot).to(at::kFloat),
                        weights.select(1, slot).unsqueeze(1));
    }
    if (model.shared_intermediate > 0) {
      const Tensor shared = Mlp(name + "shared_expert.", rows);
      sum = sum + at::sigmoid(Linear(name + "shared_expert_gate", rows)) * shared;
    }
    if (biased && at::GradMode::is_enabled()) {
      Tensor& loads = loads_[name + "gate.balance"];
      loads = loads.defined() ? loads + at::stack(counts) : at::stack(counts);
    }
    if (model.balance == Balance::kLoss && at::GradMode::is_enabled()) {
      const Tensor share = at::stack(counts) / rows.size(0);
      const Tensor loss = (share * probabilities.mean(0)).sum() *
                          (model.balance_loss * model.experts / model.layers);
      auxiliary_ = auxiliary_.defined() ? auxiliary_ + loss : loss;
    }
    return sum.view_as(x);
  }

  Tensor LlamaLogits(const Tensor& ids) const {
    const int64_t heads = spec_.model.heads, kv_heads = spec_.model.kv_heads;
    Tensor x = at::embedding(P("model.embed_tokens.weight"), ids);
    for (uint32_t layer = 0; layer < spec_.model.layers; ++layer) {
      const std::string block = "model.layers." + std::to_string(layer);
      const std::string attention = block + ".self_attn.", mlp = block + ".mlp.";
      const Tensor normed = RmsNorm(block + ".input_layernorm", x).to(dtype_);
      const Tensor queries = Turned(attention + "q", normed, heads);
      const Tensor keys = Turned(attention + "k", normed, kv_heads);
      const Tensor values = SplitHeads(Linear(attention + "v_proj", normed), kv_heads);
      const Tensor attended = at::scaled_dot_product_attention(
          queries, keys, values, {}, 0.0, /*is_causal=*/true, {}, /*enable_gqa=*/true);
      x = x + Linear(attention + "o_proj", attended.transpose(1, 2).flatten(2));
      const Tensor inner = RmsNorm(block + ".post_attention_layernorm", x).to(dtype_);
      x = x + (spec_.model.family == ModelFamily::kMoe ? Experts(mlp, inner) : Mlp(mlp, inner));
    }
    return at::linear(RmsNorm("model.norm", x),
                      P(spec_.model.tied ? "model.embed_tokens.weight" : "lm_head.weight"));
  }

  std::vector<Tensor> Values() const {
    std::vector<Tensor> values;
    for (const worker::Parameter& parameter : parameters_) {
      values.push_back(parameter.value.detach().clone());
    }
    return values;
  }
  void SetValues(const std::vector<Tensor>& values) {
    for (size_t i = 0; i < values.size(); ++i) parameters_[i].value.detach().copy_(values[i]);
  }

  const RunSpec& spec_;
  const TokenFile& tokens_;
  std::vector<Tensor> older_;   // values before the last update
  const at::ScalarType dtype_;  // of what goes into matrix products
  const std::vector<worker::Parameter> parameters_;
  ReferenceOptimizer optimizer_;
  std::map<std::string, Tensor> by_name_;
  mutable std::map<std::string, Tensor> loads_;  // of this step, where biases balance experts
  uint64_t read_ = 0;                            // microbatches, so far
  mutable Tensor auxiliary_;  // loss of the forward before this, where there are experts
};

}  // namespace

StatusOr<ReferenceRun> RunReference(const RunSpec& spec, const std::string& token_file,
                                    uint64_t steps, const std::vector<uint32_t>& microbatches) {
  LH_ASSIGN_OR_RETURN(const TokenFile tokens, TokenFile::Open(token_file, /*verify=*/true));
  if (tokens.TrainingWindows(spec.model.context) == 0) {
    return absl::InvalidArgumentError("the token file is too short for the model's context");
  }
  const auto run_all = [&]() -> StatusOr<ReferenceRun> {
    Reference reference(spec, tokens);
    ReferenceRun run;
    for (uint64_t step = 1; step <= steps; ++step) {
      const uint32_t of_step = microbatches.empty()
                                   ? spec.train.microbatches
                                   : microbatches[std::min<size_t>(step, microbatches.size()) - 1];
      reference.TrainStep(step, of_step, &run);
      const uint32_t every = spec.validation.every;
      if (every == 0 || (step % every != 0 && step != spec.train.steps)) continue;
      if (const std::optional<double> loss = reference.Validate()) {
        run.validations.push_back({step, *loss});
      }
    }
    return run;
  };
  return worker::CallTorch("reference loop", spec.pipeline.threads_per_stage, run_all);
}

StatusOr<std::vector<double>> ReferenceLosses(const RunSpec& spec, const std::string& token_file,
                                              uint64_t steps,
                                              const std::vector<uint32_t>& microbatches) {
  LH_ASSIGN_OR_RETURN(ReferenceRun run, RunReference(spec, token_file, steps, microbatches));
  return std::move(run.losses);
}

}  // namespace longhaul::testing
