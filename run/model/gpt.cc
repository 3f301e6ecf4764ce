// GPT-2's layers: pre-norm, learned positions, multi-head attention, GELU (tanh), biases
// everywhere.
#include "run/model/families.h"

namespace longhaul::model {
namespace {

// Published as Conv1D's, (inputs, outputs).
Parameter Conv1D(Names names, Shape shape, Initial initial, Split split) {
  Parameter matrix = Factor(Role::kBlock, names, shape, initial, split);
  matrix.published_transposed = true;
  return matrix;
}

Parameter Positions(const ModelSpec& spec) {
  Parameter table = Table({"wpe", "transformer.wpe.weight"}, {spec.context, spec.hidden}, kWhole,
                          /*tied=*/false);
  table.first_rows_suffice = true;
  return table;
}

std::vector<Parameter> GptParameters(const ModelSpec& spec, uint32_t vocabulary_rows) {
  const uint32_t h = spec.hidden;
  const Initial residual = NormalOfResidual(spec);
  Split qkv = kRowsByHead;
  qkv.stacked = 3;  // queries, keys, values
  std::vector<Parameter> list = {
      Table({"wte", "transformer.wte.weight"}, {vocabulary_rows, h}, kByToken, spec.tied),
      Positions(spec),

      Norm(Role::kBlock, {"h.#.ln_1.weight", "transformer.h.#.ln_1.weight"}, h, kOnes),
      Norm(Role::kBlock, {"h.#.ln_1.bias", "transformer.h.#.ln_1.bias"}, h, kZeros),
      Conv1D({"h.#.attn.qkv.weight", "transformer.h.#.attn.c_attn.weight"}, {3 * h, h}, kNormal,
             qkv),
      Bias({"h.#.attn.qkv.bias", "transformer.h.#.attn.c_attn.bias"}, 3 * h, qkv),
      Conv1D({"h.#.attn.proj.weight", "transformer.h.#.attn.c_proj.weight"}, {h, h}, residual,
             kColumnsByHead),
      Bias({"h.#.attn.proj.bias", "transformer.h.#.attn.c_proj.bias"}, h, kWhole),
      Norm(Role::kBlock, {"h.#.ln_2.weight", "transformer.h.#.ln_2.weight"}, h, kOnes),
      Norm(Role::kBlock, {"h.#.ln_2.bias", "transformer.h.#.ln_2.bias"}, h, kZeros),
      Conv1D({"h.#.mlp.fc.weight", "transformer.h.#.mlp.c_fc.weight"}, {4 * h, h}, kNormal, kRows),
      Bias({"h.#.mlp.fc.bias", "transformer.h.#.mlp.c_fc.bias"}, 4 * h, kRows),
      Conv1D({"h.#.mlp.proj.weight", "transformer.h.#.mlp.c_proj.weight"}, {h, 4 * h}, residual,
             kColumns),
      Bias({"h.#.mlp.proj.bias", "transformer.h.#.mlp.c_proj.bias"}, h, kWhole),

      Norm(Role::kHead, {"ln_f.weight", "transformer.ln_f.weight"}, h, kOnes),
      Norm(Role::kHead, {"ln_f.bias", "transformer.ln_f.bias"}, h, kZeros),
  };
  if (!spec.tied) {
    list.push_back(Factor(Role::kHead, {"lm_head.weight", "lm_head.weight"}, {vocabulary_rows, h},
                          kNormal, kByToken));
  }
  return list;
}

// Full: the input and the residual in the middle. Half: the two norms, qkv (3h), attention, and the
// MLP's 4h before and 4h after GELU.
Kept GptBlockKeeps(const ModelSpec& spec, const Ranks& ranks) {
  const uint64_t h = spec.hidden;
  return {.full = 2 * h / (ranks.share_tokens ? ranks.count : 1),
          .half = 2 * h + 12 * h / ranks.count};
}

// The input and the norm.
Kept GptFinalNormKeeps(const ModelSpec& spec) {
  return {.full = 2 * uint64_t{spec.hidden}};
}

ModelSpec Gpt2(uint32_t layers, uint32_t hidden, uint32_t heads) {
  return {.family = ModelFamily::kGpt,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .context = 1024,
          .vocabulary = 50257};
}

}  // namespace

const Family& GptFamily() {
  static const Family family = {
      .id = ModelFamily::kGpt,
      .name = "gpt",
      .keys = {{"norm_epsilon", RealKey{&ModelSpec::norm_epsilon, 1, 1e-5}, kNormEpsilonDoc}},
      .problems = [](const ModelSpec&) { return std::vector<Problem>(); },
      .parameters = GptParameters,
      .kept_by_block = GptBlockKeeps,
      .kept_by_final_norm = GptFinalNormKeeps,
      .kv_channels = [](const ModelSpec& spec) { return spec.hidden; },
      .published_prefix = "transformer.",
      .usual_targets = [](const ModelSpec&) { return std::vector<std::string>{"c_attn"}; },
      .presets = {{"gpt2", Gpt2(12, 768, 12)},
                  {"gpt2-medium", Gpt2(24, 1024, 16)},
                  {"gpt2-xl", Gpt2(48, 1600, 25)}},
  };
  return family;
}

}  // namespace longhaul::model
