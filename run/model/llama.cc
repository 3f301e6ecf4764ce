// Llama's layers and those of its kin (Mistral, Qwen, SmolLM3, OLMo-2, Phi-3, Gemma 2 and 3):
// RMSNorm, rotary positions, grouped-query attention, a gated MLP, no biases but (qkv_bias) those
// of queries, keys and values. The kin differ by the keys below. Parameters have the names and
// shapes of published checkpoints.
#include "run/model/llama.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "run/model/families.h"

namespace longhaul::model {
namespace {

// As many parameters as an MLP of 4 x hidden without a gate has, rounded up to what kernels like.
uint32_t UsualIntermediate(uint32_t hidden) {
  return (hidden * 8 / 3 + 63) / 64 * 64;
}

constexpr Names Same(std::string_view name) {
  return {name, name};
}

// A published tensor of several parameters, stacked in its rows.
class Stacked {
 public:
  Stacked(std::string_view name, uint32_t rows) : name_(name), rows_(rows) {}
  // Gives `parameter` the next rows of the tensor.
  void Add(Parameter* parameter) {
    parameter->published = name_;
    parameter->published_rows = rows_;
    parameter->published_first_row = std::exchange(first_, first_ + parameter->shape.rows);
  }

 private:
  const std::string_view name_;
  const uint32_t rows_;
  uint32_t first_ = 0;
};

uint32_t NormsOfBlock(const ModelSpec& spec) {
  return spec.norms == Norms::kBoth ? 4 : 2;
}

}  // namespace

std::vector<Problem> AttentionProblems(const ModelSpec& spec) {
  std::vector<Problem> problems;
  if (spec.heads % spec.kv_heads != 0) {
    problems.push_back(
        {"kv_heads", fmt::format("model.kv_heads: {} heads of keys and values do not divide "
                                 "model.heads {}; choose a divisor",
                                 spec.kv_heads, spec.heads)});
  }
  if (spec.rotary_channels % 2 != 0 || spec.rotary_channels > spec.HeadChannels()) {
    problems.push_back({"rotary_channels",
                        fmt::format("model.rotary_channels: expected an even number of at most {}, "
                                    "the channels of a head, got {}",
                                    spec.HeadChannels(), spec.rotary_channels)});
  }
  if (const uint32_t channels = spec.HeadChannels(); channels % 2 != 0) {
    if (spec.head_channels > 0) {
      problems.push_back(
          {"head_channels", fmt::format("model.head_channels: expected an even number, got {}; "
                                        "rotary embeddings turn pairs of channels",
                                        channels)});
    } else {
      problems.push_back(
          {"heads", fmt::format("model.heads: {} heads of model.hidden {} have {} channels each, "
                                "an odd number; rotary embeddings turn pairs of channels",
                                spec.heads, spec.hidden, channels)});
    }
  }
  if (spec.rope_scaling == RopeScaling::kLlama3 &&
      spec.rope_high_frequency <= spec.rope_low_frequency) {
    problems.push_back(
        {"rope_high_frequency", fmt::format("model.rope_high_frequency: expected more than "
                                            "model.rope_low_frequency, {}, got {}",
                                            spec.rope_low_frequency, spec.rope_high_frequency)});
  }
  if (spec.rope_scaling == RopeScaling::kYarn && spec.rope_beta_fast <= spec.rope_beta_slow) {
    problems.push_back(
        {"rope_beta_fast",
         fmt::format("model.rope_beta_fast: expected more than model.rope_beta_slow, {}, got {}",
                     spec.rope_beta_slow, spec.rope_beta_fast)});
  }
  if (spec.rope_scaling == RopeScaling::kLongrope) {
    const auto check = [&](std::string_view key, const std::vector<double>& factors) {
      if (factors.size() == spec.RotaryChannels() / 2) return;
      problems.push_back(
          {key,
           fmt::format("model.{}: expected {} numbers, one for each pair of the {} channels "
                       "that are turned, got {}",
                       key, spec.RotaryChannels() / 2, spec.RotaryChannels(), factors.size())});
    };
    check("rope_short_factors", spec.rope_short_factors);
    check("rope_long_factors", spec.rope_long_factors);
  }
  const bool stretches_by_power = spec.rope_scaling == RopeScaling::kDynamic;
  if (stretches_by_power && spec.RotaryChannels() < 4) {
    problems.push_back({"rope_scaling",
                        "model.rope_scaling: dynamic needs at least 4 channels of a head that are "
                        "turned"});
  }
  if (spec.window == 0 && (spec.window_from > 0 || spec.full_every > 0)) {
    problems.push_back({"window",
                        "model.window: expected the length of the window that model.window_from "
                        "and model.full_every are about, got 0, no window"});
  }
  if (spec.qk_norm_whole && !spec.qk_norm) {
    problems.push_back({"qk_norm_whole",
                        "model.qk_norm_whole: expected model.qk_norm: true beside it, as it says "
                        "what those norms are over"});
  }
  if (spec.stacked_matrices && spec.qkv_bias) {
    problems.push_back({"stacked_matrices",
                        "model.stacked_matrices: no published model stacks matrices that have "
                        "biases; leave model.qkv_bias out"});
  }
  return problems;
}

std::vector<Parameter> ParametersAround(const std::function<std::vector<Parameter>()>& mlp,
                                        const ModelSpec& spec, uint32_t vocabulary_rows) {
  const uint32_t h = spec.hidden, q = spec.QueryChannels(), k = spec.KvChannels();
  const Initial residual = NormalOfResidual(spec);
  const Initial of_norms = spec.norms_from_one ? kZeros : kOnes;
  std::vector<Parameter> list;
  const auto norm = [&](Role role, std::string_view name, uint32_t channels) {
    list.push_back(Norm(role, Same(name), channels, of_norms));
  };
  const auto factor = [&](std::string_view name, Shape shape, Initial initial, Split split) {
    list.push_back(Factor(Role::kBlock, Same(name), shape, initial, split));
  };
  const auto bias = [&](std::string_view name, uint32_t outputs, Split split) {
    if (spec.qkv_bias) list.push_back(Bias(Same(name), outputs, split));
  };
  Stacked qkv("model.layers.#.self_attn.qkv_proj.weight", q + 2 * k);
  const auto projection = [&](std::string_view name, uint32_t outputs, Split split) {
    factor(name, {outputs, h}, kNormal, split);
    if (spec.stacked_matrices) qkv.Add(&list.back());
  };
  list.push_back(
      Table(Same("model.embed_tokens.weight"), {vocabulary_rows, h}, kByToken, spec.tied));

  if (spec.norms != Norms::kPost) norm(Role::kBlock, "model.layers.#.input_layernorm.weight", h);
  projection("model.layers.#.self_attn.q_proj.weight", q, kRowsByHead);
  bias("model.layers.#.self_attn.q_proj.bias", q, kRowsByHead);
  projection("model.layers.#.self_attn.k_proj.weight", k, kRowsByKvHead);
  bias("model.layers.#.self_attn.k_proj.bias", k, kRowsByKvHead);
  projection("model.layers.#.self_attn.v_proj.weight", k, kRowsByKvHead);
  bias("model.layers.#.self_attn.v_proj.bias", k, kRowsByKvHead);
  factor("model.layers.#.self_attn.o_proj.weight", {h, q}, residual, kColumnsByHead);
  const auto norm_of_heads = [&](std::string_view name, uint32_t whole, Split split) {
    norm(Role::kBlock, name, spec.qk_norm_whole ? whole : spec.HeadChannels());
    if (spec.qk_norm_whole) {
      list.back().split = split;
    } else {
      list.back().for_own_part = true;
    }
  };
  if (spec.qk_norm) {
    norm_of_heads("model.layers.#.self_attn.q_norm.weight", q, kRowsByHead);
    norm_of_heads("model.layers.#.self_attn.k_norm.weight", k, kRowsByKvHead);
  }
  // Behind attention where there are norms behind, else before the MLP: published models call both
  // so.
  norm(Role::kBlock, "model.layers.#.post_attention_layernorm.weight", h);
  if (spec.norms == Norms::kBoth) {
    norm(Role::kBlock, "model.layers.#.pre_feedforward_layernorm.weight", h);
  }
  for (Parameter& parameter : mlp()) list.push_back(std::move(parameter));
  if (spec.norms != Norms::kPre) {
    norm(Role::kBlock, "model.layers.#.post_feedforward_layernorm.weight", h);
  }

  norm(Role::kHead, "model.norm.weight", h);
  if (!spec.tied) {
    list.push_back(
        Factor(Role::kHead, Same("lm_head.weight"), {vocabulary_rows, h}, kNormal, kByToken));
  }
  return list;
}

// Full: what goes into each norm. Half: the inputs of both products, queries, attention, keys and
// values. Heads of keys and values that are fewer than ranks are repeated.
Kept AttentionKeeps(const ModelSpec& spec, const Ranks& ranks) {
  const uint64_t h = spec.hidden, q = spec.QueryChannels() / ranks.count;
  const uint64_t k = std::max(spec.kv_heads / ranks.count, 1u) * uint64_t{spec.HeadChannels()};
  const uint64_t norms =
      NormsOfBlock(spec) * h / (ranks.share_tokens ? ranks.count : 1) + (spec.qk_norm ? q + k : 0);
  return {.full = norms, .half = 2 * h + 2 * q + 2 * k, .before_weights = norms};
}

// The input of the norm, and its output.
Kept RmsNormKeeps(const ModelSpec& spec) {
  return {.full = 2 * uint64_t{spec.hidden}, .before_weights = spec.hidden};
}

std::vector<Key> AttentionKeys() {
  return {
      {"kv_heads", WholeKey{&ModelSpec::kv_heads, 1u << 12, &ModelSpec::heads},
       "Heads of keys and values; a divisor of heads"},
      {"rope_theta", RealKey{&ModelSpec::rope_theta, 1e12, 1e4},
       "Base of the wavelengths of rotary embeddings"},
      {"norm_epsilon", RealKey{&ModelSpec::norm_epsilon, 1, 1e-6}, kNormEpsilonDoc},
      {"qkv_bias", FlagKey{&ModelSpec::qkv_bias},
       "The projections to queries, keys and values have biases"},
      {"head_channels", WholeKey{.field = &ModelSpec::head_channels, .most = 1u << 12, .least = 0},
       "Channels of a head; 0: hidden / heads"},
      {"qk_norm", FlagKey{&ModelSpec::qk_norm},
       "Queries and keys of each head go through an RMSNorm"},
      {"qk_norm_whole", FlagKey{&ModelSpec::qk_norm_whole},
       "qk_norm: one norm over the channels of all heads together"},
      {"norms", NormsKey{&ModelSpec::norms},
       "Norms of a block: pre, before attention and MLP; post, behind them, before their result is "
       "added; both"},
      {"norms_from_one", FlagKey{&ModelSpec::norms_from_one}, "Norms multiply by 1 + their weight"},
      {"rope_scaling", ScalingKey{&ModelSpec::rope_scaling},
       "How rotary embeddings are stretched to a longer context: linear stretches all wavelengths, "
       "llama3 and yarn the long ones, dynamic those of rows that are longer, longrope each by a "
       "factor of its own"},
      {"rope_factor", RealKey{&ModelSpec::rope_factor, 1e6, 1},
       "Factor by which wavelengths are stretched"},
      {"rope_low_frequency", RealKey{&ModelSpec::rope_low_frequency, 1e6, 1},
       "llama3: wavelengths longer than rope_original_context divided by this are stretched"},
      {"rope_high_frequency", RealKey{&ModelSpec::rope_high_frequency, 1e6, 4},
       "llama3: wavelengths shorter than rope_original_context divided by this stay"},
      {"rope_original_context",
       WholeKey{.field = &ModelSpec::rope_original_context, .most = 1u << 22},
       "llama3, yarn, dynamic, longrope: context before the stretching"},
      {"rope_beta_fast", RealKey{&ModelSpec::rope_beta_fast, 1e6, 32},
       "yarn: pairs of channels that turn more often in rope_original_context stay"},
      {"rope_beta_slow", RealKey{&ModelSpec::rope_beta_slow, 1e6, 1},
       "yarn: pairs that turn less often in rope_original_context are stretched by rope_factor"},
      {"rope_whole_pairs", FlagKey{&ModelSpec::rope_whole_pairs},
       "yarn: the limits of the two keys above are rounded to whole pairs"},
      {"rope_attention_factor", RealKey{&ModelSpec::rope_attention_factor, 1e3, 0, true},
       "yarn, longrope: queries and keys are multiplied by it; 0: as the method's paper has it"},
      {"rope_short_factors", RealsKey{&ModelSpec::rope_short_factors, 1e6},
       "longrope: factor of each wavelength where the context is at most rope_original_context"},
      {"rope_long_factors", RealsKey{&ModelSpec::rope_long_factors, 1e6},
       "longrope: factor of each wavelength where the context is longer"},
      {"rotary_channels",
       WholeKey{.field = &ModelSpec::rotary_channels, .most = 1u << 12, .least = 0},
       "Channels of a head that rotary embeddings turn, the first ones; 0: all"},
      {"rope_theta_windowed", RealKey{&ModelSpec::rope_theta_windowed, 1e12, 0, true},
       "Base of the wavelengths in layers with a window, which are not stretched; 0: as in other "
       "layers"},
      {"window", WholeKey{.field = &ModelSpec::window, .most = 1u << 22, .least = 0},
       "Sliding window: the most tokens that a token attends to, itself included; 0: all"},
      {"window_from", WholeKey{.field = &ModelSpec::window_from, .most = 1u << 12, .least = 0},
       "Layers before the one of this number, counted from 0, have no window"},
      {"full_every", WholeKey{.field = &ModelSpec::full_every, .most = 1u << 12, .least = 0},
       "Every so many layers one has no window; 0: all layers have it"},
      {"attention_cap", RealKey{&ModelSpec::attention_cap, 1e6, 0, true},
       "Scores s of attention become cap * tanh(s / cap); 0: they stay"},
      {"logit_cap", RealKey{&ModelSpec::logit_cap, 1e6, 0, true}, "The same for logits"},
      {"score_channels",
       WholeKey{.field = &ModelSpec::score_channels, .most = 1u << 20, .least = 0},
       "Scores of attention are divided by the square root of it; 0: of the channels of a head"},
      {"scale_embedding", FlagKey{&ModelSpec::scale_embedding},
       "The embedding is multiplied by the square root of hidden"}};
}

namespace {

std::vector<Parameter> LlamaParameters(const ModelSpec& spec, uint32_t vocabulary_rows) {
  const auto mlp = [&spec] {
    const uint32_t h = spec.hidden, i = spec.intermediate;
    const auto factor = [](std::string_view name, Shape shape, Initial initial, Split split) {
      return Factor(Role::kBlock, Same(name), shape, initial, split);
    };
    std::vector list = {
        factor("model.layers.#.mlp.gate_proj.weight", {i, h}, kNormal, kRows),
        factor("model.layers.#.mlp.up_proj.weight", {i, h}, kNormal, kRows),
        factor("model.layers.#.mlp.down_proj.weight", {h, i}, NormalOfResidual(spec), kColumns)};
    if (spec.stacked_matrices) {
      Stacked gate_and_up("model.layers.#.mlp.gate_up_proj.weight", 2 * i);
      gate_and_up.Add(&list[0]);
      gate_and_up.Add(&list[1]);
    }
    return list;
  };
  return ParametersAround(mlp, spec, vocabulary_rows);
}

// Half, of the MLP: gate, its activation, up and product.
Kept LlamaBlockKeeps(const ModelSpec& spec, const Ranks& ranks) {
  Kept kept = AttentionKeeps(spec, ranks);
  kept.half += 4 * uint64_t{spec.intermediate / ranks.count};
  return kept;
}

std::vector<Key> LlamaKeys() {
  std::vector<Key> keys = AttentionKeys();
  // Behind kv_heads, where written run files have it.
  keys.insert(keys.begin() + 1, {"intermediate",
                                 RequiredKey{&ModelSpec::intermediate, 1u << 19,
                                             "the width of its MLP", UsualIntermediate},
                                 "Width of the MLP"});
  keys.push_back({"nope_every",
                  WholeKey{.field = &ModelSpec::nope_every, .most = 1u << 12, .least = 0},
                  "Every so many layers one has no rotary embeddings; 0: none"});
  keys.push_back({"activation", ActivationKey{&ModelSpec::activation},
                  "Function of the MLP's gate: silu, or gelu (with tanh)"});
  keys.push_back({"stacked_matrices", FlagKey{&ModelSpec::stacked_matrices},
                  "Published tensors hold queries, keys and values in one, gate and up in one"});
  return keys;
}

ModelSpec Qwen25(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t kv_heads,
                 uint32_t intermediate) {
  return {.family = ModelFamily::kLlama,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .context = 32768,
          .vocabulary = 151936,  // with the rows that fill the published embedding up
          .kv_heads = kv_heads,
          .intermediate = intermediate,
          .rope_theta = 1e6,
          .norm_epsilon = 1e-6,
          .qkv_bias = true};
}

}  // namespace

const Family& LlamaFamily() {
  static const Family family = {
      .id = ModelFamily::kLlama,
      .name = "llama",
      .keys = LlamaKeys(),
      .problems = AttentionProblems,
      .parameters = LlamaParameters,
      .kept_by_block = LlamaBlockKeeps,
      .kept_by_final_norm = RmsNormKeeps,
      .kv_channels = [](const ModelSpec& spec) { return spec.KvChannels(); },
      .published_prefix = "model.",
      .usual_targets =
          [](const ModelSpec& spec) {
            return spec.stacked_matrices ? std::vector<std::string>{"qkv_proj"}
                                         : std::vector<std::string>{"q_proj", "v_proj"};
          },
      .presets = {{"qwen2.5-0.5b", Qwen25(24, 896, 14, 2, 4864)},
                  {"qwen2.5-3b", Qwen25(36, 2048, 16, 2, 11008)}},
  };
  return family;
}

}  // namespace longhaul::model
