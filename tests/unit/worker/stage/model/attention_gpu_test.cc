// Attention on a GPU: the fused kernels for bf16, and masks for fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/worker/stage_on_gpu.h"
#include "tests/unit/worker/stage/model/attention_cases.h"

namespace longhaul::worker {
namespace {

using ::testing::Each;
using ::testing::Lt;

class AttentionOnGpu : public ::testing::TestWithParam<AttentionCase> {
 protected:
  static void SetUpTestSuite() { longhaul::testing::LoadTorchCudaOrFail(); }
};
INSTANTIATE_TEST_SUITE_P(Cases, AttentionOnGpu, ::testing::ValuesIn(AttentionCases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(AttentionOnGpu, IsThatOfAllScores) {
  for (const auto& [type, bound] : {std::pair(at::kFloat, 1e-4), std::pair(at::kBFloat16, 2e-2)}) {
    const AttentionInput input = InputOf(GetParam(), at::TensorOptions(type).device(at::kCUDA));
    EXPECT_THAT(Differences(BySight(GetParam(), input), ByScores(GetParam(), input)),
                Each(Lt(bound)));
  }
}

// More documents than there are: those that are missing are empty.
TEST_P(AttentionOnGpu, DoesNotDependOnTheMostDocuments) {
  AttentionInput input = InputOf(GetParam(), at::TensorOptions(at::kBFloat16).device(at::kCUDA));
  const Attended expected = BySight(GetParam(), input);
  input.most_documents += 20;
  const Attended got = BySight(GetParam(), input);
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    EXPECT_TRUE(got.tensors[i].equal(expected.tensors[i])) << i;
  }
}

}  // namespace
}  // namespace longhaul::worker
