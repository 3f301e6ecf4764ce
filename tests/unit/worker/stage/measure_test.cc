#include <gtest/gtest.h>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

StageOptions Options() {
  StageOptions options;
  options.model.layers = 2;
  options.model.hidden = 128;
  options.model.heads = 4;
  options.model.context = 128;
  options.layers = 2;
  options.train.microbatches = 4;
  return options;
}

class MeasureLayerTimesOf : public ::testing::TestWithParam<ModelFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, MeasureLayerTimesOf,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(MeasureLayerTimesOf, GivesAPositiveTimeForEachLayerAndPass) {
  StageOptions options = Options();
  options.model.family = GetParam();
  options.model.kv_heads = 2;
  options.model.intermediate = 320;
  options.model.experts = 4;
  options.model.experts_per_token = 2;
  options.model.expert_intermediate = 160;
  const auto times = MeasureLayerTimes(options);
  ASSERT_TRUE(times.ok()) << times.status();
  for (const double seconds : {times->embedding.forward, times->embedding.backward,
                               times->block.forward, times->block.backward, times->head.forward,
                               times->head.backward, times->optimizer_seconds_per_parameter}) {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 5);
  }
  EXPECT_GT(times->block.forward, times->embedding.forward);
}

TEST(MeasureLayerTimes, RecomputationCountsAsBackward) {
  StageOptions options = Options();
  options.model.context = 256;  // Long enough for the forward to stand out.
  double ratio = 0;
  for (int attempt = 0; attempt < 5 && ratio < 1.2; ++attempt) {  // Others use this machine too.
    options.recompute = Recompute::kNone;
    const auto kept = MeasureLayerTimes(options);
    options.recompute = Recompute::kStage;
    const auto recomputed = MeasureLayerTimes(options);
    ASSERT_TRUE(kept.ok() && recomputed.ok());
    ratio = recomputed->block.backward / kept->block.backward;
  }
  EXPECT_GT(ratio, 1.2);
}

TEST(MeasureLayerTimes, RefusesWhatIsNoModel) {
  StageOptions options = Options();
  options.model.heads = 3;
  EXPECT_EQ(MeasureLayerTimes(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::worker
