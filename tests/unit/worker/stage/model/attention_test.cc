#include "worker/stage/model/attention.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/stage/model/attention_cases.h"

namespace longhaul::worker {
namespace {

using ::testing::Each;
using ::testing::Lt;

class Attention : public ::testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Attention, ::testing::ValuesIn(AttentionCases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Attention, IsThatOfAllScores) {
  const AttentionInput input = InputOf(GetParam(), at::TensorOptions(at::kFloat));
  EXPECT_THAT(Differences(BySight(GetParam(), input), ByScores(GetParam(), input)), Each(Lt(1e-5)));
}

// Rows so long that not all scores are in memory at a time.
TEST(AttentionInChunks, IsThatOfAllScores) {
  for (const Scoring& scoring :
       {Scoring{}, Scoring{.window = 300}, Scoring{.cap = 2, .window = 300}}) {
    const AttentionCase one{.name = "long",
                            .rows = 8,
                            .heads = 1,
                            .heads_of_keys = 1,
                            .tokens = 1500,
                            .channels = 8,
                            .scoring = scoring,
                            .lengths = {900, 500}};
    const AttentionInput input = InputOf(one, at::TensorOptions(at::kFloat));
    EXPECT_THAT(Differences(BySight(one, input), ByScores(one, input)), Each(Lt(1e-5)))
        << scoring.cap << " " << scoring.window;
  }
}

TEST(Sight, CountsPositionsWithinDocuments) {
  const at::Tensor documents = at::tensor({0, 0, 1, 1, 1, 2, 0, 1, 2, 3, 4, 5}).view({2, 6});
  const at::Tensor expected = at::tensor({1, 2, 0, 0, 0, 0}).view({2, 3});
  EXPECT_TRUE(Sight(3, 3, documents.to(at::kLong), 9).Positions().equal(expected.to(at::kLong)));
  EXPECT_FALSE(Sight(3, 3).Positions().defined());
}

}  // namespace
}  // namespace longhaul::worker
