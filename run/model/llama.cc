// Llama's layers, Mistral's and Qwen's: pre-norm by RMSNorm, rotary positions, grouped-query
// attention, SwiGLU, no biases but (qkv_bias) those of queries, keys and values; queries and keys
// may have a norm (qk_norm). Parameters have the names and shapes of published checkpoints.
#include "run/model/llama.h"

#include <fmt/core.h>

#include <algorithm>

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

}  // namespace

std::vector<Problem> AttentionProblems(const ModelSpec& spec) {
  std::vector<Problem> problems;
  if (spec.heads % spec.kv_heads != 0) {
    problems.push_back(
        {"kv_heads", fmt::format("model.kv_heads: {} heads of keys and values do not divide "
                                 "model.heads {}; choose a divisor",
                                 spec.kv_heads, spec.heads)});
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
  return problems;
}

std::vector<Parameter> ParametersAround(const std::function<std::vector<Parameter>()>& mlp,
                                        const ModelSpec& spec, uint32_t vocabulary_rows) {
  const uint32_t h = spec.hidden, q = spec.QueryChannels(), k = spec.KvChannels();
  const Initial residual = NormalOfResidual(spec);
  std::vector<Parameter> list;
  const auto norm = [&](Role role, std::string_view name, uint32_t channels) {
    list.push_back(Norm(role, Same(name), channels, kOnes));
  };
  const auto factor = [&](std::string_view name, Shape shape, Initial initial, Split split) {
    list.push_back(Factor(Role::kBlock, Same(name), shape, initial, split));
  };
  const auto bias = [&](std::string_view name, uint32_t outputs, Split split) {
    if (spec.qkv_bias) list.push_back(Bias(Same(name), outputs, split));
  };
  list.push_back(
      Table(Same("model.embed_tokens.weight"), {vocabulary_rows, h}, kByToken, spec.tied));

  norm(Role::kBlock, "model.layers.#.input_layernorm.weight", h);
  factor("model.layers.#.self_attn.q_proj.weight", {q, h}, kNormal, kRowsByHead);
  bias("model.layers.#.self_attn.q_proj.bias", q, kRowsByHead);
  factor("model.layers.#.self_attn.k_proj.weight", {k, h}, kNormal, kRowsByKvHead);
  bias("model.layers.#.self_attn.k_proj.bias", k, kRowsByKvHead);
  factor("model.layers.#.self_attn.v_proj.weight", {k, h}, kNormal, kRowsByKvHead);
  bias("model.layers.#.self_attn.v_proj.bias", k, kRowsByKvHead);
  factor("model.layers.#.self_attn.o_proj.weight", {h, q}, residual, kColumnsByHead);
  if (spec.qk_norm) {
    for (const std::string_view name :
         {"model.layers.#.self_attn.q_norm.weight", "model.layers.#.self_attn.k_norm.weight"}) {
      norm(Role::kBlock, name, spec.HeadChannels());
      list.back().for_own_part = true;
    }
  }
  norm(Role::kBlock, "model.layers.#.post_attention_layernorm.weight", h);
  for (Parameter& parameter : mlp()) list.push_back(std::move(parameter));

  norm(Role::kHead, "model.norm.weight", h);
  if (!spec.tied) {
    list.push_back(
        Factor(Role::kHead, Same("lm_head.weight"), {vocabulary_rows, h}, kNormal, kByToken));
  }
  return list;
}

// Full: the input, the residual in the middle, and both norms before their weights. Half: both
// norms, queries, attention, keys and values. Norms of queries and keys: what goes in, in fp32, and
// what it was before weights. Heads of keys and values that are fewer than ranks are repeated.
Kept AttentionKeeps(const ModelSpec& spec, const Ranks& ranks) {
  const uint64_t h = spec.hidden, q = spec.QueryChannels() / ranks.count;
  const uint64_t k = std::max(spec.kv_heads / ranks.count, 1u) * uint64_t{spec.HeadChannels()};
  return {.full = 4 * h / (ranks.share_tokens ? ranks.count : 1) + (spec.qk_norm ? 2 * (q + k) : 0),
          .half = 2 * h + 2 * q + 2 * k};
}

// The input, and the norm before and after its weight.
Kept RmsNormKeeps(const ModelSpec& spec) {
  return {.full = 3 * uint64_t{spec.hidden}};
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
      {"rope_scaling", ScalingKey{&ModelSpec::rope_scaling},
       "How rotary embeddings are stretched to a longer context: linear stretches all wavelengths, "
       "llama3 the long ones"},
      {"rope_factor", RealKey{&ModelSpec::rope_factor, 1e6, 1},
       "Factor by which wavelengths are stretched"},
      {"rope_low_frequency", RealKey{&ModelSpec::rope_low_frequency, 1e6, 1},
       "llama3: wavelengths longer than rope_original_context divided by this are stretched"},
      {"rope_high_frequency", RealKey{&ModelSpec::rope_high_frequency, 1e6, 4},
       "llama3: wavelengths shorter than rope_original_context divided by this stay"},
      {"rope_original_context",
       WholeKey{.field = &ModelSpec::rope_original_context, .most = 1u << 22},
       "llama3: context before the stretching"}};
}

namespace {

std::vector<Parameter> LlamaParameters(const ModelSpec& spec, uint32_t vocabulary_rows) {
  const auto mlp = [&spec] {
    const uint32_t h = spec.hidden, i = spec.intermediate;
    const auto factor = [](std::string_view name, Shape shape, Initial initial, Split split) {
      return Factor(Role::kBlock, Same(name), shape, initial, split);
    };
    return std::vector{
        factor("model.layers.#.mlp.gate_proj.weight", {i, h}, kNormal, kRows),
        factor("model.layers.#.mlp.up_proj.weight", {i, h}, kNormal, kRows),
        factor("model.layers.#.mlp.down_proj.weight", {h, i}, NormalOfResidual(spec), kColumns)};
  };
  return ParametersAround(mlp, spec, vocabulary_rows);
}

// Half, of the MLP: gate, SiLU, up and product.
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
      .usual_targets = {"q_proj", "v_proj"},
      .presets = {{"qwen2.5-0.5b", Qwen25(24, 896, 14, 2, 4864)},
                  {"qwen2.5-3b", Qwen25(36, 2048, 16, 2, 11008)}},
  };
  return family;
}

}  // namespace longhaul::model
