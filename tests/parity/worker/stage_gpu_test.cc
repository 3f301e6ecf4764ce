// Stages on a GPU do what stages on the CPU do, within what sums in another order make of it; and
// what one has learnt the other can go on with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::testing {
namespace {

TEST_P(StageOnGpu, LearnsAsOnTheCpu) {
  StageChain cpu = Chain(kCpu), gpu = Chain(kGpu);
  double first = 0, last = 0;
  for (uint64_t step = 1; step <= 50; ++step) {
    const double there = cpu.Train(step), here = gpu.Train(step);
    ASSERT_TRUE(std::isfinite(here)) << step;
    ASSERT_NEAR(here, there, GetParam().tolerance) << step;
    if (step == 1) first = here;
    last = here;
  }
  EXPECT_LT(last, first - 1);
}

TEST_P(StageOnGpu, TheOtherDeviceGoesOn) {
  StageChain cpu = Chain(kCpu), gpu = Chain(kGpu);
  for (uint64_t step = 1; step <= 3; ++step) gpu.Train(step);
  cpu.TakeFrom(gpu);
  EXPECT_NEAR(cpu.Train(4), gpu.Train(4), GetParam().tolerance);
  gpu.TakeFrom(cpu);
  EXPECT_NEAR(cpu.Train(5), gpu.Train(5), GetParam().tolerance);
}

TEST_P(StageOnGpu, RepeatsItselfToTheBitWhereItIsTold) {
  StageChain once = Chain(kGpu, /*deterministic=*/true), again = Chain(kGpu, true);
  for (uint64_t step = 1; step <= 20; ++step) EXPECT_EQ(once.Train(step), again.Train(step));
  ExpectSameParameters(once, again);
}

INSTANTIATE_TEST_SUITE_P(Models, StageOnGpu, SmallModels(), NameOf);

}  // namespace
}  // namespace longhaul::testing
