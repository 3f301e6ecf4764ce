#include "coordinator/planner/memory.h"

#include <gtest/gtest.h>

#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {
namespace {

RunSpec Gpt2Small() {
  RunSpec spec;
  spec.model.layers = 12;
  spec.model.hidden = 768;
  spec.model.heads = 12;
  spec.model.context = 1024;
  spec.train.microbatches = 8;
  return spec;
}

TEST(StageParameters, KnownModels) {
  RunSpec spec = Gpt2Small();
  spec.model.tied = true;
  EXPECT_EQ(StageParameters(spec.model, 50257, 12, true, true), 124'439'808u);  // GPT-2 small
  spec.model.tied = false;
  EXPECT_EQ(StageParameters(spec.model, 50257, 12, true, true), 124'439'808u + 50257u * 768u);
}

TEST(StageParameters, DoNotDependOnTheSplit) {
  const ModelSpec model = Gpt2Small().model;
  const uint64_t whole = StageParameters(model, 256, 12, true, true);
  EXPECT_EQ(StageParameters(model, 256, 5, true, false) +
                StageParameters(model, 256, 4, false, false) +
                StageParameters(model, 256, 3, false, true),
            whole);
}

TEST(StageMemoryBytes, GrowsWithDepthLayersAndBatch) {
  RunSpec spec = Gpt2Small();
  const uint64_t one = StageMemoryBytes(spec, 256, 3, false, false, 1);
  const uint64_t two = StageMemoryBytes(spec, 256, 3, false, false, 2);
  // A microbatch in flight: 16 values a token and block, and the stage's input and output.
  EXPECT_EQ(two - one, 1024u * 768u * 4u * (3u * 16u + 2u));
  EXPECT_GT(StageMemoryBytes(spec, 256, 4, false, false, 1), one);
  EXPECT_GT(StageMemoryBytes(spec, 50257, 3, false, true, 1), one);
  spec.train.dtype = ComputeDtype::kBf16;
  EXPECT_LT(StageMemoryBytes(spec, 256, 3, false, false, 8),
            StageMemoryBytes(Gpt2Small(), 256, 3, false, false, 8));
}

TEST(StageMemoryBytes, RecomputationKeepsInputsOnly) {
  RunSpec spec = Gpt2Small();
  spec.pipeline.recompute = true;
  const uint64_t one = StageMemoryBytes(spec, 256, 3, false, false, 1);
  EXPECT_EQ(StageMemoryBytes(spec, 256, 3, false, false, 2) - one, 2u * 1024u * 768u * 4u);
}

}  // namespace
}  // namespace longhaul::coordinator
