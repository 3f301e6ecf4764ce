// What a worker says to --device where there is a GPU.
#include "tests/support/gpu_test.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include "tests/unit/worker/rpc/worker_program.h"

namespace longhaul::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WorkerOnGpu, ChecksItAndSaysThatStagesRunOnTheCpu) {
  const Refusal refusal = RunWorkerOn("cuda:0");
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_THAT(refusal.sentence,
              AllOf(HasSubstr("the GPU works"), HasSubstr(Gpu().Describe()),
                    HasSubstr("trains on the CPU only"), HasSubstr("--device cpu")));
}

TEST(WorkerOnGpu, NamesTheGpusThereAre) {
  int count = 0;
  ASSERT_EQ(Gpu().table().device_count(&count), 0);
  const Refusal refusal = RunWorkerOn(fmt::format("cuda:{}", count));
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_THAT(refusal.sentence, HasSubstr(fmt::format("cuda:0 to cuda:{}", count - 1)));
}

}  // namespace
}  // namespace longhaul::testing
