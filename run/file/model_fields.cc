#include "run/file/model_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "run/file/model_presets.h"
#include "run/tokens/token_file.h"

namespace longhaul::config {
namespace {

// A boundary tensor's encoding must fit the 32 bits of a frame's length, in fp32 and with room for
// headers.
constexpr uint64_t kMostBoundaryElements = 1ull << 29;
constexpr uint32_t kWidestMlp = 1u << 19;
constexpr std::array kLlamaKeys = {"model.kv_heads", "model.intermediate", "model.rope_theta",
                                   "model.norm_epsilon", "model.qkv_bias"};

const ModelPreset* FindPreset(const std::string& name) {
  const std::vector<ModelPreset>& presets = ModelPresets();
  const auto it = std::find_if(presets.begin(), presets.end(),
                               [&](const ModelPreset& preset) { return preset.name == name; });
  return it == presets.end() ? nullptr : &*it;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : ModelPresets()) names.push_back(preset.name);
  return names;
}

// The usual width of an MLP with a gate: as many parameters as one of 4 x hidden without, rounded
// up to what kernels like.
uint32_t UsualIntermediate(uint32_t hidden) {
  return (hidden * 8 / 3 + 63) / 64 * 64;
}

void FillFrom(const ModelPreset& preset, Reader& reader, ModelSpec* model) {
  if (reader.Has("model.family") && model->family != preset.model.family) {
    reader.Fail(reader.PlaceOf("model.family"),
                fmt::format("model.family: the preset {} is of family {}, got {}; leave family out",
                            preset.name, ToString(preset.model.family), ToString(model->family)));
  }
  model->family = preset.model.family;
  const auto fill = [&](const char* key, auto ModelSpec::*field) {
    const std::string path = fmt::format("model.{}", key);
    if (reader.Has(path)) return;
    model->*field = preset.model.*field;
    reader.Assume(path, "model.preset");
  };
  fill("layers", &ModelSpec::layers);
  fill("hidden", &ModelSpec::hidden);
  fill("heads", &ModelSpec::heads);
  fill("context", &ModelSpec::context);
  fill("vocabulary", &ModelSpec::vocabulary);
  if (model->family != ModelFamily::kLlama) return;
  fill("kv_heads", &ModelSpec::kv_heads);
  fill("intermediate", &ModelSpec::intermediate);
  fill("rope_theta", &ModelSpec::rope_theta);
  fill("norm_epsilon", &ModelSpec::norm_epsilon);
  fill("qkv_bias", &ModelSpec::qkv_bias);
}

void CheckHeads(const ModelSpec& model, Reader& reader) {
  if (!reader.Sound({"model.family", "model.hidden", "model.heads"})) return;
  if (model.hidden % model.heads != 0) {
    reader.Fail(reader.PlaceOf("model.heads"),
                fmt::format("model.heads: {} heads do not divide model.hidden {}; choose a divisor",
                            model.heads, model.hidden));
    return;
  }
  if (model.family != ModelFamily::kLlama) return;
  if (reader.Sound({"model.kv_heads"}) && model.heads % model.kv_heads != 0) {
    reader.Fail(reader.PlaceOf("model.kv_heads"),
                fmt::format("model.kv_heads: {} heads of keys and values do not divide model.heads "
                            "{}; choose a divisor",
                            model.kv_heads, model.heads));
  }
  if (const uint32_t channels = model.hidden / model.heads; channels % 2 != 0) {
    reader.Fail(
        reader.PlaceOf("model.heads"),
        fmt::format("model.heads: {} heads of model.hidden {} have {} channels each, an odd "
                    "number; rotary embeddings turn pairs of channels",
                    model.heads, model.hidden, channels));
  }
}

void CheckVocabulary(const RunSpec& spec, Reader& reader) {
  if (!spec.model.vocabulary || !reader.Sound({"model.vocabulary", "data.tokenizer"})) return;
  const auto tokenizer = Tokenizer::Create(spec.data.tokenizer);
  if (!tokenizer.ok() || *spec.model.vocabulary >= (*tokenizer)->vocabulary()) return;
  reader.Fail(
      reader.PlaceOf("model.vocabulary"),
      fmt::format("model.vocabulary: {} rows are fewer than the {} tokens of the tokenizer {}; "
                  "raise it, or 'auto' for as many",
                  *spec.model.vocabulary, (*tokenizer)->vocabulary(), spec.data.tokenizer));
}

}  // namespace

Field Model(ModelSpec* model, std::string* preset) {
  return Section(
      "model",
      {OneOf("preset", preset, PresetNames()),
       Choice("family", &model->family, std::vector{ModelFamily::kGpt, ModelFamily::kLlama}),
       Required(Whole("layers", &model->layers, 1, 4096)),
       Required(Whole("hidden", &model->hidden, 1, 1u << 17)),
       Required(Whole("heads", &model->heads, 1, 1u << 12)),
       Required(Whole("context", &model->context, 1, 1u << 22)), Flag("tied", &model->tied),
       WholeOrAuto("vocabulary", &model->vocabulary, 1, 1u << 24),
       Whole("kv_heads", &model->kv_heads, 1, 1u << 12),
       Whole("intermediate", &model->intermediate, 1, kWidestMlp),
       Real("rope_theta", &model->rope_theta, {.least = 0, .most = 1e12, .above_least = true}),
       Real("norm_epsilon", &model->norm_epsilon, {.least = 0, .most = 1, .above_least = true}),
       Flag("qkv_bias", &model->qkv_bias)});
}

void CompleteModel(const std::string& preset, Reader& reader, ModelSpec* model) {
  if (const ModelPreset* known = FindPreset(preset)) {
    FillFrom(*known, reader, model);
  } else if (reader.Has("model.preset")) {
    // One that is not known is reported; what it would have said is not missing.
    for (const char* path : {"model.layers", "model.hidden", "model.heads", "model.context"}) {
      reader.Assume(path, "model.preset");
    }
  }
  if (model->family != ModelFamily::kLlama) return;
  if (!reader.Has("model.kv_heads")) model->kv_heads = model->heads;
  if (reader.Has("model.intermediate")) return;
  reader.Fail(
      reader.PlaceOf("model"),
      fmt::format("the key 'model.intermediate' is missing; family llama needs the width of "
                  "its MLP, a whole number from 1 to {}{}",
                  kWidestMlp,
                  model->hidden == 0 ? ""
                                     : fmt::format(", for hidden {} often {}", model->hidden,
                                                   UsualIntermediate(model->hidden))));
}

void CheckModel(const RunSpec& spec, Reader& reader) {
  const ModelSpec& model = spec.model;
  if (model.family == ModelFamily::kGpt && reader.Sound({"model.family", "model.preset"})) {
    for (const char* key : kLlamaKeys) {
      if (!reader.Has(key)) continue;
      reader.Fail(reader.PlaceOf(key),
                  fmt::format("{}: a key of family llama, and this model's family is gpt; leave it "
                              "out or set model.family to llama",
                              key));
    }
  }
  CheckHeads(model, reader);
  CheckVocabulary(spec, reader);
  if (model.tied && spec.pipeline.stages != 1u && reader.Sound({"model.tied", "pipeline.stages"})) {
    reader.Fail(
        reader.PlaceOf("model.tied"),
        fmt::format("model.tied: true needs pipeline.stages: 1, got {}; embedding and head "
                    "would lie on different workers",
                    spec.pipeline.stages ? fmt::format("{}", *spec.pipeline.stages) : "auto"));
  }
  if (!reader.Sound({"train.microbatch_size", "model.context", "model.hidden"})) return;
  const uint64_t tokens = uint64_t{spec.train.microbatch_size} * model.context;
  if (tokens > kMostBoundaryElements / model.hidden) {
    reader.Fail(
        reader.PlaceOf("model.context"),
        fmt::format("train.microbatch_size x model.context x model.hidden = {} x {} x {} is more "
                    "than the {} elements that a link carries at once; lower one of them",
                    spec.train.microbatch_size, model.context, model.hidden,
                    kMostBoundaryElements));
  }
}

std::string ModelYaml(const ModelSpec& model) {
  std::string out = fmt::format(
      "model:\n"
      "  family: {}\n"
      "  layers: {}\n"
      "  hidden: {}\n"
      "  heads: {}\n"
      "  context: {}\n"
      "  tied: {}\n",
      ToString(model.family), model.layers, model.hidden, model.heads, model.context, model.tied);
  if (model.vocabulary) out += fmt::format("  vocabulary: {}\n", *model.vocabulary);
  if (model.family != ModelFamily::kLlama) return out;
  return out + fmt::format(
                   "  kv_heads: {}\n"
                   "  intermediate: {}\n"
                   "  rope_theta: {}\n"
                   "  norm_epsilon: {}\n"
                   "  qkv_bias: {}\n",
                   model.kv_heads, model.intermediate, model.rope_theta, model.norm_epsilon,
                   model.qkv_bias);
}

}  // namespace longhaul::config
