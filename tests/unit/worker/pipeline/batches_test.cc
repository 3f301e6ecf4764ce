// Which sequences steps read where the number of replicas changes.
#include "worker/pipeline/batches.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace longhaul::worker {
namespace {

RunSpec SpecWith(uint32_t replicas) {
  RunSpec spec;
  spec.train.microbatches = 3;
  spec.train.microbatch_size = 2;
  spec.replicas.count = replicas;
  return spec;
}

// Whatever the numbers are, replicas together read every sequence once, in order.
TEST(SampleOrder, ReadsEachSequenceOnceThoughReplicasComeAndGo) {
  constexpr uint64_t kWindows = 1009;
  const auto expected = data::ShuffledOrder(7, kWindows);
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    ReadSoFar before;
    uint64_t sequence = 0;
    for (int epoch = 0; epoch < 8; ++epoch) {
      const uint32_t replicas = 1 + random() % 4;
      RunSpec spec = SpecWith(replicas);
      spec.data.seed = 7;
      const uint64_t steps = random() % 6;
      for (uint64_t step = before.step + 1; step <= before.step + steps; ++step) {
        for (uint32_t replica = 0; replica < replicas; ++replica) {
          const SampleOrder order = SampleOrderOf(spec, nullptr, kWindows, replica, before);
          for (uint32_t microbatch = 0; microbatch < 3; ++microbatch) {
            for (uint32_t row = 0; row < 2; ++row) {
              ASSERT_EQ(order.WindowOf(Step(step), Microbatch(microbatch), row),
                        expected->WindowOf(sequence++))
                  << "seed " << seed << ", step " << step;
            }
          }
        }
      }
      before = {before.step + steps, before.microbatches + steps * spec.MicrobatchesPerStep()};
    }
  }
}

// An assignment of an older version does not say what was read.
TEST(SampleOrder, FollowsFromTheStepWhereNothingElseIsSaid) {
  Assignment assignment;
  assignment.start_step = 10;
  EXPECT_EQ(ReadBefore(assignment, SpecWith(2)).microbatches, 10u * 2 * 3);
  assignment.microbatches_before = 45;
  EXPECT_EQ(ReadBefore(assignment, SpecWith(2)).microbatches, 45u);
  EXPECT_EQ(ReadBefore(assignment, SpecWith(2)).step, 10u);
}

}  // namespace
}  // namespace longhaul::worker
