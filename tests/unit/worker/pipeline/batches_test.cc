// Which sequences steps read where the number of replicas changes.
#include "worker/pipeline/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "worker/stage/stage.h"

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

// Windows of 12 tokens that are given.
class GivenWindows final : public WindowSource {
 public:
  explicit GivenWindows(std::vector<std::vector<int32_t>> windows, std::vector<std::string> masks)
      : windows_(std::move(windows)), masks_(std::move(masks)) {}
  uint64_t WindowsOf(Text text) const override {
    return text == Text::kTraining ? windows_.size() : 0;
  }
  Status Read(Text /*text*/, uint64_t window, std::span<int32_t> inputs,
              std::span<int32_t> targets) override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = windows_[window][i];
      targets[i] = masks_[window][i + 1] == '1' ? windows_[window][i + 1] : kNoTarget;
    }
    return absl::OkStatus();
  }
  void Expect(Text /*text*/, std::span<const uint64_t> /*windows*/) override {}

 private:
  const std::vector<std::vector<int32_t>> windows_;
  const std::vector<std::string> masks_;
};

// Two pairs, one whose rejected answer has no target, and one pair that ends with its window.
TEST(Batches, CountsPairsWhereARunTrainsOnPreferences) {
  RunSpec spec;
  spec.model.context = 12;
  spec.train.microbatches = 3;
  spec.train.microbatch_size = 1;
  spec.train.dpo = DpoSpec();
  spec.data.masks = spec.data.mask_documents = true;
  spec.validation.share = 0;
  data::Mixture mixture;
  mixture.sources.push_back({.folder = "/pairs", .weight = 1, .set = {}});
  mixture.sources[0].set.end_token = 0;
  mixture.sources[0].set.vocabulary = 9;
  mixture.sources[0].set.chunk_bytes = 4096;
  mixture.sources[0].set.training.shards.push_back({.tokens = 37, .ids = {}, .mask = {}});
  Batches batches(spec,
                  std::make_shared<GivenWindows>(
                      std::vector<std::vector<int32_t>>{{1, 2, 0, 1, 3, 0, 4, 0, 5, 0, 0, 0, 0},
                                                        {1, 2, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0},
                                                        {1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0}},
                      std::vector<std::string>{"0110110101000", "0110000000000", "0000110000110"}),
                  &mixture);
  uint64_t targets = 0;
  for (uint32_t m = 0; m < 3; ++m) {
    const auto tokens = batches.Read(Pass{Step(1)}, Microbatch(m));
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(tokens->counted, 3.0 / 3);
    // Filling belongs to the last answer.
    EXPECT_EQ(tokens->documents.back(), tokens->inputs[6] == 4 ? 3 : 1);
    targets += static_cast<uint64_t>(
        std::ranges::count_if(tokens->targets, [](int32_t id) { return id >= 0; }));
  }
  EXPECT_EQ(targets, 6u + 2 + 4);
}

}  // namespace
}  // namespace longhaul::worker
