// Llama's layers with a mixture of experts for an MLP: Mixtral's, Qwen2-MoE's and Qwen3-MoE's. A
// router scores the experts of each token, and those with the highest scores compute. Qwen2-MoE has
// a shared expert besides, which all tokens go through, behind a gate.
//
// Every expert has parameters of its own under published names: Mixtral's, where the model is one,
// else Qwen's. Their global names are Qwen's in any case.
#include <fmt/format.h>

#include <utility>

#include "run/model/families.h"
#include "run/model/llama.h"

namespace longhaul::model {
namespace {

// Maximum number of experts of a model. Lists of parameters name each expert, and a file of a few
// bytes must not make these lists arbitrarily large.
constexpr uint64_t kMostExperts = 1u << 16;

uint32_t UsualExperts(uint32_t /*hidden*/) {
  return 8;
}
uint32_t UsualExpertsPerToken(uint32_t /*hidden*/) {
  return 2;
}
// Two of them have about as many parameters as one usual MLP.
uint32_t UsualExpertIntermediate(uint32_t hidden) {
  return (hidden * 4 / 3 + 63) / 64 * 64;
}

std::vector<Problem> MoeProblems(const ModelSpec& spec) {
  std::vector<Problem> problems = AttentionProblems(spec);
  if (spec.experts_per_token > spec.experts) {
    problems.push_back({"experts_per_token",
                        fmt::format("model.experts_per_token: expected at most model.experts, {}, "
                                    "got {}",
                                    spec.experts, spec.experts_per_token)});
  }
  if (uint64_t{spec.experts} * spec.layers > kMostExperts) {
    problems.push_back({"experts", fmt::format("model.experts: {} in each of model.layers {} are "
                                               "more than {}; lower one of them",
                                               spec.experts, spec.layers, kMostExperts)});
  }
  if (spec.balance == Balance::kBias && spec.lora) {
    problems.push_back({"balance",
                        "model.balance: bias moves numbers that no published model has, and the "
                        "model of train.lora's adapters stays as it was published; say loss or "
                        "none"});
  }
  return problems;
}

// Mixtral has no norms of queries and keys, no biases and no shared expert. Every model of Qwen has
// at least one of these.
bool IsNamedAsMixtral(const ModelSpec& spec) {
  return !spec.qk_norm && !spec.qkv_bias && spec.shared_intermediate == 0;
}

std::vector<Parameter> MixtureParameters(const ModelSpec& spec) {
  constexpr std::string_view kBlock = "model.layers.#.";
  const uint32_t h = spec.hidden, i = spec.expert_intermediate, s = spec.shared_intermediate;
  const Initial residual = NormalOfResidual(spec);
  const bool mixtral = IsNamedAsMixtral(spec);
  std::vector<Parameter> list;
  // In a group each rank routes its own tokens.
  const auto factor = [&](const std::string& name, const std::string& published, Shape shape,
                          Initial initial, Split split = kWhole) {
    const std::string global = fmt::format("{}mlp.{}.weight", kBlock, name);
    const std::string there =
        mixtral ? fmt::format("{}block_sparse_moe.{}.weight", kBlock, published) : global;
    list.push_back(Factor(Role::kBlock, {global, there}, shape, initial, split));
    list.back().for_own_part = true;
  };
  factor("gate", "gate", {spec.experts, h}, kNormal);
  list.back().in_product = false;  // scores are computed in fp32
  if (spec.balance == Balance::kBias) {
    list.push_back({.name = fmt::format("{}mlp.gate.balance", kBlock),
                    .role = Role::kBlock,
                    .shape = {.rows = spec.experts},
                    .split = kWhole,
                    .balances = true});
  }
  for (uint32_t expert = 0; expert < spec.experts; ++expert) {
    const std::string of = fmt::format("experts.{}.", expert);
    const Split split{.along = Along::kExperts, .expert = expert};
    factor(of + "gate_proj", of + "w1", {i, h}, kNormal, split);
    factor(of + "up_proj", of + "w3", {i, h}, kNormal, split);
    factor(of + "down_proj", of + "w2", {h, i}, residual, split);
  }
  if (s == 0) return list;
  factor("shared_expert.gate_proj", "", {s, h}, kNormal);
  factor("shared_expert.up_proj", "", {s, h}, kNormal);
  factor("shared_expert.down_proj", "", {h, s}, residual);
  factor("shared_expert_gate", "", {1, h}, kNormal);
  return list;
}

std::vector<Parameter> MoeParameters(const ModelSpec& spec, uint32_t vocabulary_rows) {
  return ParametersAround([&spec] { return MixtureParameters(spec); }, spec, vocabulary_rows);
}

// Full: scores and weights, and two lists of whole numbers of twice the size: who was chosen, and
// where in the order of experts. Half, for each expert of the token: input, gate, SiLU, up,
// product, and output. Of the shared expert all but the input, and its gate. A rank has these of
// its own tokens; where experts are divided, of as many on average.
Kept MoeBlockKeeps(const ModelSpec& spec, const Ranks& ranks) {
  const uint64_t h = spec.hidden, k = spec.experts_per_token, s = spec.shared_intermediate;
  Kept kept = AttentionKeeps(spec, ranks);
  kept.full += (spec.experts + k + 2 * 2 * k) / ranks.count;
  kept.half += k * (2 * h + 4 * uint64_t{spec.expert_intermediate}) / ranks.count;
  if (s > 0) kept.half += (4 * s + h + 1) / ranks.count;
  return kept;
}

std::vector<Key> MoeKeys() {
  std::vector<Key> keys = AttentionKeys();
  const std::vector<Key> of_mixture = {
      {"experts",
       RequiredKey{&ModelSpec::experts, 1u << 12, "the number of experts of a block", UsualExperts},
       "Experts of a block"},
      {"experts_per_token",
       RequiredKey{&ModelSpec::experts_per_token, 1u << 12, "how many experts compute for a token",
                   UsualExpertsPerToken},
       "Experts that compute for a token: those with the highest scores"},
      {"expert_intermediate",
       RequiredKey{&ModelSpec::expert_intermediate, 1u << 19, "the width of an expert's MLP",
                   UsualExpertIntermediate},
       "Width of an expert's MLP"},
      {"shared_intermediate",
       WholeKey{.field = &ModelSpec::shared_intermediate, .most = 1u << 19, .least = 0},
       "Width of the MLP that all tokens go through besides; 0: none"},
      {"normalize_router", FlagKey{&ModelSpec::normalize_router},
       "The weights of a token's experts sum to 1"},
      {"balance", BalanceKey{&ModelSpec::balance},
       "What keeps experts equally busy: loss, an auxiliary loss; bias, numbers that are added to "
       "scores where experts are chosen"},
      {"balance_loss", RealKey{&ModelSpec::balance_loss, 1e3, 1e-3},
       "balance loss: factor of the auxiliary loss"},
      {"balance_rate", RealKey{&ModelSpec::balance_rate, 1, 1e-3},
       "balance bias: how far a number moves after a step"}};
  keys.insert(keys.end(), of_mixture.begin(), of_mixture.end());
  return keys;
}

ModelSpec Qwen3_30bA3b() {
  return {.family = ModelFamily::kMoe,
          .layers = 48,
          .hidden = 2048,
          .heads = 32,
          .context = 40960,
          .vocabulary = 151936,
          .kv_heads = 4,
          .head_channels = 128,
          .rope_theta = 1e6,
          .norm_epsilon = 1e-6,
          .qk_norm = true,
          .experts = 128,
          .experts_per_token = 8,
          .expert_intermediate = 768};
}

ModelSpec Mixtral8x7b() {
  return {.family = ModelFamily::kMoe,
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .context = 32768,
          .vocabulary = 32000,
          .kv_heads = 8,
          .rope_theta = 1e6,
          .norm_epsilon = 1e-5,
          .experts = 8,
          .experts_per_token = 2,
          .expert_intermediate = 14336,
          .balance_loss = 0.02};
}

}  // namespace

const Family& MoeFamily() {
  static const Family family = {
      .id = ModelFamily::kMoe,
      .name = "moe",
      .keys = MoeKeys(),
      .problems = MoeProblems,
      .parameters = MoeParameters,
      .kept_by_block = MoeBlockKeeps,
      .kept_by_final_norm = RmsNormKeeps,
      .kv_channels = [](const ModelSpec& spec) { return spec.KvChannels(); },
      .published_prefix = "model.",
      .usual_targets =
          [](const ModelSpec&) {
            return std::vector<std::string>{"q_proj", "v_proj"};
          },
      .presets = {{"qwen3-30b-a3b", Qwen3_30bA3b()}, {"mixtral-8x7b", Mixtral8x7b()}},
  };
  return family;
}

}  // namespace longhaul::model
