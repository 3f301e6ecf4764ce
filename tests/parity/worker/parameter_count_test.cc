// The planner counts the parameters that stages have.
#include <gtest/gtest.h>

#include <string>

#include "planner/memory.h"
#include "run/model/family.h"
#include "worker/stage/stage.h"

namespace longhaul {
namespace {

// A model like the preset's, with few and narrow layers.
ModelSpec ScaledDown(const model::Preset& preset) {
  ModelSpec model = preset.model;
  const uint32_t group = model.kv_heads == 0 ? 1 : model.heads / model.kv_heads;
  model.layers = 3;
  model.heads = 2 * group;
  model.hidden = 8 * model.heads;
  model.context = 16;
  model.vocabulary = 300;
  if (model.kv_heads > 0) model.kv_heads = 2;
  model.expert_intermediate = model.hidden * preset.model.expert_intermediate / preset.model.hidden;
  model.intermediate = model.hidden * preset.model.intermediate / preset.model.hidden;
  return model;
}

class ParameterCount : public ::testing::TestWithParam<model::Preset> {};

TEST_P(ParameterCount, OfThePlanIsThatOfTheStages) {
  worker::StageOptions options;
  options.train.microbatches = 1;
  for (const bool bias : {false, true}) {
    options.model = ScaledDown(GetParam());
    options.model.qkv_bias = bias;
    const auto expect_same = [&](uint32_t first_layer, uint32_t layers, bool first, bool last) {
      options.first_layer = first_layer;
      options.layers = layers;
      options.first = first;
      options.last = last;
      const auto stage = worker::Stage::Create(options);
      ASSERT_TRUE(stage.ok()) << stage.status();
      EXPECT_EQ(coordinator::StageParameters(options.model, 256, layers, first, last),
                (*stage)->parameter_count())
          << layers << " layers, first " << first << ", last " << last << ", bias " << bias;
    };
    expect_same(0, 1, true, false);
    expect_same(1, 1, false, false);
    expect_same(1, 2, false, true);
    expect_same(0, 3, true, true);
    options.model.tied = true;
    expect_same(0, 3, true, true);
    // Only trained parameters count.
    options.model.lora =
        LoraSpec{.rank = 4, .alpha = 8, .targets = {"c_proj", "q_proj", "up_proj"}};
    expect_same(0, 1, true, false);
    expect_same(1, 2, false, true);
    expect_same(0, 3, true, true);
    options.model.lora.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, ParameterCount, ::testing::ValuesIn(model::Presets()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace longhaul
