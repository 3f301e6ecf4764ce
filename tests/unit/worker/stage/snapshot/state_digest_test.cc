#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <utility>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

StageOptions SmallStage() {
  StageOptions options;
  options.model.layers = 2;
  options.model.hidden = 32;
  options.model.heads = 4;
  options.model.context = 16;
  options.layers = 2;
  options.train.microbatches = 1;
  options.threads = 2;
  return options;
}

// Every bit counts: of a parameter and of the optimizer state, wherever it is.
TEST(StateDigestTest, EachFlippedBitChangesIt) {
  const std::unique_ptr<Stage> stage = Stage::Create(SmallStage()).value();
  const uint64_t digest = stage->StateDigest().value();
  EXPECT_EQ(stage->StateDigest().value(), digest);
  const StageSnapshot whole = stage->Snapshot().value();
  ASSERT_FALSE(whole.moments.empty());
  for (std::vector<NamedArray> StageSnapshot::*arrays :
       {&StageSnapshot::parameters, &StageSnapshot::moments}) {
    for (const size_t array : {size_t{0}, (whole.*arrays).size() - 1}) {
      StageSnapshot changed = whole;
      float& value = (changed.*arrays)[array].values.back();
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1U);
      ASSERT_TRUE(stage->Restore(changed).ok());
      EXPECT_NE(stage->StateDigest().value(), digest) << (changed.*arrays)[array].name;
      ASSERT_TRUE(stage->Restore(whole).ok());
      EXPECT_EQ(stage->StateDigest().value(), digest);
    }
  }
}

TEST(StateDigestTest, DoesNotDependOnThreads) {
  StageOptions options = SmallStage();
  const uint64_t two = Stage::Create(options).value()->StateDigest().value();
  options.threads = 1;
  EXPECT_EQ(Stage::Create(options).value()->StateDigest().value(), two);
}

}  // namespace
}  // namespace longhaul::worker
