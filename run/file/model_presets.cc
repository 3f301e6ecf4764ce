#include "run/file/model_presets.h"

namespace longhaul {
namespace {

ModelSpec Gpt2(uint32_t layers, uint32_t hidden, uint32_t heads) {
  ModelSpec model;
  model.family = ModelFamily::kGpt;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.context = 1024;
  model.vocabulary = 50257;
  return model;
}

ModelSpec Qwen25(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t kv_heads,
                 uint32_t intermediate) {
  ModelSpec model;
  model.family = ModelFamily::kLlama;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.context = 32768;
  model.vocabulary = 151936;  // with the rows that fill the published embedding up
  model.kv_heads = kv_heads;
  model.intermediate = intermediate;
  model.rope_theta = 1e6;
  model.norm_epsilon = 1e-6;
  model.qkv_bias = true;
  return model;
}

}  // namespace

const std::vector<ModelPreset>& ModelPresets() {
  static const std::vector<ModelPreset> presets = {
      {"gpt2", Gpt2(12, 768, 12)},
      {"gpt2-medium", Gpt2(24, 1024, 16)},
      {"gpt2-xl", Gpt2(48, 1600, 25)},
      {"qwen2.5-0.5b", Qwen25(24, 896, 14, 2, 4864)},
      {"qwen2.5-3b", Qwen25(36, 2048, 16, 2, 11008)},
  };
  return presets;
}

}  // namespace longhaul
