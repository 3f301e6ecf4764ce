// The order of a pipeline's steps.
#include "transport/collective/engine/pipeline.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace longhaul::collective {
namespace {

using ::testing::ElementsAre;

TEST(Pipeline, InHostMemoryPieceComesAfterPiece) {
  StatusOr<Pipeline> pipeline = Pipeline::Create(nullptr);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  std::vector<std::string> order;
  const auto step = [&](const std::string& name) {
    return [&order, name](uint64_t piece, Queue) {
      order.push_back(fmt::format("{}{}", name, piece));
      return absl::OkStatus();
    };
  };
  const std::vector<Step> steps = {{.lag = 0, .wire = false, .run = step("encode")},
                                   {.lag = 0, .wire = true, .run = step("send")},
                                   {.lag = 1, .wire = false, .run = step("decode")}};
  ASSERT_TRUE(pipeline->Run(2, steps, {}).ok());
  EXPECT_THAT(order, ElementsAre("encode0", "send0", "decode0", "encode1", "send1", "decode1"));
}

TEST(Pipeline, AStepThatFailsEndsIt) {
  StatusOr<Pipeline> pipeline = Pipeline::Create(nullptr);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  int runs = 0;
  const std::vector<Step> steps = {{.run = [&](uint64_t piece, Queue) {
    ++runs;
    return piece == 1 ? absl::AbortedError("rank 1 was lost") : absl::OkStatus();
  }}};
  EXPECT_TRUE(absl::IsAborted(pipeline->Run(3, steps, {})));
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace longhaul::collective
