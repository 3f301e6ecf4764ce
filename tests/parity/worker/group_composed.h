// Stages of groups for tests of what composes with ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/parity/worker/group_cases.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Makes stages of so many ranks, which hold the part of tokens or channels that `group` says.
inline MakeStage OfRanks(uint32_t ranks, const GroupSpec& group = {}) {
  return [=](StageOptions options) {
    options.group.sequence = group.sequence;
    options.group.shared_channels = group.shared_channels;
    return MakeWith(std::move(options), ranks, group);
  };
}

// Runs steps of `pipeline.schedule: 2bw`: the passes of a step compute with parameters that lack
// the update of the step before. Returns the losses of all microbatches, those of a step that has
// only begun last.
inline std::vector<double> OverlappedLosses(const StageOptions& options, uint32_t ranks,
                                            uint64_t steps) {
  std::vector<double> losses;
  auto made = MakeWith(options, ranks);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return losses;
  auto twin = (*made)->MakeTwin();
  EXPECT_TRUE(twin.ok()) << twin.status();
  if (!twin.ok()) return losses;
  std::unique_ptr<Stage> ends = *std::move(made), begins = *std::move(twin);
  const auto forward = [&](Stage& stage, uint64_t step) {
    for (uint32_t m = 0; m < options.train.microbatches; ++m) {
      const Batch batch(options, static_cast<int>(10 * step + m));
      EXPECT_EQ(stage.Forward(Microbatch(m), batch.input()).status(), absl::OkStatus());
      losses.push_back(stage.Loss(Microbatch(m)).value());
    }
  };
  const auto backward = [&](Stage& stage) {
    for (uint32_t m = 0; m < options.train.microbatches; ++m) {
      EXPECT_EQ(stage.Backward(Microbatch(m), {}).status(), absl::OkStatus());
    }
  };
  forward(*ends, 1);
  for (uint64_t step = 1; step <= steps; ++step) {
    // The next step has begun when this one ends.
    forward(*begins, step + 1);
    backward(*ends);
    EXPECT_TRUE(ends->AddSquaredGradientNorm(0).ok());
    if (step > 1) {
      EXPECT_EQ(ends->TakeTurnFrom(begins.get()), absl::OkStatus());
    }
    EXPECT_EQ(ends->OptimizerStep(Step(step), 1e-3, 1), absl::OkStatus());
    std::swap(ends, begins);
  }
  return losses;
}

}  // namespace longhaul::worker
