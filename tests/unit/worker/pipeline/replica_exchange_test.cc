// Two replicas of a whole model in one process, whose messages are passed on by hand.
#include "worker/pipeline/replica_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/mailbox.h"

namespace longhaul::worker {
namespace {

constexpr uint32_t kPairMicrobatches = 2, kPairContext = 8;

// Larger than a bucket, the last of which has parameters of the last block and of the head alone.
StageOptions PairOptions(Recompute recompute, uint32_t slices) {
  StageOptions options;
  options.model.layers = options.layers = 2;
  options.model.hidden = 512;
  options.model.heads = 4;
  options.model.context = kPairContext;
  options.train.steps = 10;
  options.train.microbatches = kPairMicrobatches;
  options.train.microbatch_size = 1;
  options.recompute = recompute;
  options.slices = slices;
  options.shares_step = true;
  return options;
}

class ReplicaPair {
 public:
  // `begun_from`: the state that both go on from; null: as the run begins.
  ReplicaPair(const StageOptions& options, const ReplicasSpec& spec,
              const StageSnapshot* begun_from = nullptr)
      : slices_(options.slices) {
    for (uint32_t r = 0; r < 2; ++r) {
      stages_.push_back(*Stage::Create(options));
      if (begun_from != nullptr) {
        EXPECT_TRUE(stages_[r]->Restore(*begun_from).ok());
      }
      exchanges_.push_back(*ReplicaExchange::Create(
          stages_[r].get(), options, spec, r,
          [this, r, apart = spec.trains_apart()](uint32_t to, Step,
                                                 std::vector<std::byte> message) {
            std::pair said(to, ReplicaSaid{r, std::move(message)});
            if (apart) {
              of_merges_.Push(std::move(said));
            } else {
              under_way_.push_back(std::move(said));
            }
          },
          [this](const Status& status) {
            EXPECT_TRUE(status.ok()) << status;
            of_merges_.Push(std::nullopt);
          },
          begun_from));
    }
  }

  // Gives how many messages the two sent before their last backward had ended.
  size_t Train(uint64_t step, bool beside) {
    size_t early = 0;
    for (uint32_t r = 0; r < 2; ++r) {
      Passes(r, step, beside);
      early += under_way_.size();
      EXPECT_EQ(exchanges_[r]->TakeTimeBeside() > absl::ZeroDuration(), beside);
      EXPECT_EQ(exchanges_[r]->TakeTimeBeside(), absl::ZeroDuration());
      EXPECT_TRUE(exchanges_[r]->Begin(Step(step)).ok());
      // The other one is not there yet.
      for (auto& one : std::exchange(under_way_, {})) later_.push_back(std::move(one));
    }
    under_way_ = std::exchange(later_, {});
    Deliver();
    for (auto& exchange : exchanges_) {
      EXPECT_TRUE(exchange->IsReduced());
      EXPECT_TRUE(exchange->StepOwn(Step(step), 1e-3, 1).ok());
    }
    Deliver();
    for (auto& exchange : exchanges_) {
      EXPECT_TRUE(exchange->IsDone());
      EXPECT_TRUE(exchange->End(Step(step)).ok());
    }
    return early;
  }

  // Both replicas send their gradients, and then leave the step out.
  void SkipTogether(uint64_t step) {
    for (uint32_t r = 0; r < 2; ++r) {
      Passes(r, step, false);
      EXPECT_TRUE(exchanges_[r]->Begin(Step(step)).ok());
    }
    Deliver();
    for (auto& exchange : exchanges_) {
      const Status status = exchange->Skip(Step(step));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // Replicas that train apart learn nothing from it.
  void Skip(uint64_t step) {
    for (uint32_t r = 0; r < 2; ++r) {
      Passes(r, step, false);
      EXPECT_TRUE(stages_[r]->SkipStep(Step(step)).ok());
    }
  }
  void Merge(uint64_t step) {
    for (auto& exchange : exchanges_) EXPECT_TRUE(exchange->BeginMerge(Step(step)).ok());
    for (size_t ready = 0; ready < exchanges_.size();) {
      auto taken = of_merges_.Take();
      ASSERT_TRUE(taken) << "nobody says that a merge is ready";
      if (*taken) {
        EXPECT_TRUE(exchanges_[(*taken)->first]->Take(std::move((*taken)->second)).ok());
      } else {
        ++ready;
      }
    }
    for (auto& exchange : exchanges_) EXPECT_TRUE(*exchange->IsMerged());
  }
  bool AwaitsMerge() const { return exchanges_[0]->AwaitsMerge(); }

  StageSnapshot Snapshot(uint32_t replica) const { return *stages_[replica]->Snapshot(); }
  // The first replica's snapshot, with the other replica's part of a checkpoint added.
  StageSnapshot State() const {
    StageSnapshot state = Snapshot(0), other = Snapshot(1);
    other.moments.clear();
    EXPECT_TRUE(exchanges_[0]->AddState(&state).ok());
    EXPECT_TRUE(exchanges_[1]->AddState(&other).ok());
    std::ranges::move(other.moments, std::back_inserter(state.moments));
    return state;
  }

 private:
  void Passes(uint32_t replica, uint64_t step, bool beside) {
    std::vector<int32_t> ids(kPairContext), targets(kPairContext);
    for (uint32_t m = 0; m < kPairMicrobatches; ++m) {
      for (uint32_t t = 0; t < kPairContext; ++t) {
        ids[t] = static_cast<int32_t>((step * 97 + replica * 31 + m * 7 + t * 13) % 256);
        targets[t] = (ids[t] + 13) % 256;
      }
      for (uint32_t s = 0; s < slices_; ++s) {
        const Slice slice(Microbatch(m), s);
        ASSERT_TRUE(stages_[replica]->Forward(slice, {ids, {}, targets}).ok());
      }
      for (uint32_t s = slices_; s-- > 0;) {
        if (beside && m + 1 == kPairMicrobatches && s == 0) {
          ASSERT_TRUE(exchanges_[replica]->BeginBeside(Step(step)).ok());
        }
        ASSERT_TRUE(stages_[replica]->Backward(Slice(Microbatch(m), s), {}).ok());
      }
    }
  }
  void Deliver() {
    while (!under_way_.empty()) {
      auto [to, said] = std::move(under_way_.front());
      under_way_.pop_front();
      const Status status = exchanges_[to]->Take(std::move(said));
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  const uint32_t slices_;
  std::vector<std::unique_ptr<Stage>> stages_;
  // What merges send, from their threads; nullopt: one is ready.
  testing::Mailbox<std::optional<std::pair<uint32_t, ReplicaSaid>>> of_merges_;
  std::vector<std::unique_ptr<ReplicaExchange>> exchanges_;
  std::deque<std::pair<uint32_t, ReplicaSaid>> under_way_, later_;
};

class BesideTheBackward
    : public ::testing::TestWithParam<std::tuple<std::string, Recompute, uint32_t>> {};

// Gradients that leave while the last backward runs are those that are there at its end.
TEST_P(BesideTheBackward, GivesTheSameBits) {
  const auto& [form, recompute, slices] = GetParam();
  const StageOptions options = PairOptions(recompute, slices);
  const ReplicasSpec spec{.count = 2, .gradients = *replicas::ParseGradients(form)};
  ReplicaPair beside(options, spec), behind(options, spec);
  for (uint64_t step = 1; step <= 2; ++step) {
    EXPECT_GT(beside.Train(step, true), 0u);
    EXPECT_EQ(behind.Train(step, false), 0u);
  }
  const StageSnapshot expected = behind.Snapshot(0);
  for (const StageSnapshot& snapshot : {beside.Snapshot(0), beside.Snapshot(1)}) {
    ASSERT_EQ(snapshot.parameters.size(), expected.parameters.size());
    for (size_t k = 0; k < expected.parameters.size(); ++k) {
      EXPECT_EQ(snapshot.parameters[k].values, expected.parameters[k].values)
          << expected.parameters[k].name;
    }
  }
}

// A checkpoint of after a skipped step is that of before, with what earlier steps did not send.
TEST(ASkippedStep, LeavesTheStateAsItWas) {
  StageOptions options = PairOptions(Recompute::kNone, 1);
  options.model.hidden = 128;
  options.train.on_nonfinite = OnNonfinite::kSkip;
  for (const char* form : {"sdp4bit:feedback=on", "tagc:keep=0.1,least=2048,owner=sparse"}) {
    const ReplicasSpec spec{.count = 2, .gradients = *replicas::ParseGradients(form)};
    ReplicaPair pair(options, spec);
    pair.Train(1, false);
    const StageSnapshot before = pair.State();
    pair.SkipTogether(2);
    const StageSnapshot behind = pair.State();
    ASSERT_EQ(before.moments.size(), behind.moments.size());
    size_t residuals = 0;
    for (size_t k = 0; k < before.moments.size(); ++k) {
      const NamedArray& array = before.moments[k];
      ASSERT_EQ(array.name, behind.moments[k].name);
      EXPECT_EQ(array.values, behind.moments[k].values) << form << ": " << array.name;
      const bool left = std::ranges::any_of(array.values, [](float x) { return x != 0; });
      if (array.name.find(".residual") != std::string::npos && left) ++residuals;
    }
    EXPECT_GT(residuals, 2u) << form;
    for (size_t k = 0; k < before.parameters.size(); ++k) {
      EXPECT_EQ(before.parameters[k].values, behind.parameters[k].values);
    }
  }
}

// A state of before a merge says so, also where nobody has learned anything since the last one.
TEST(AMergeThatIsToCome, IsBegunByWhoGoesOn) {
  StageOptions options = PairOptions(Recompute::kNone, 1);
  options.shares_step = false;
  const ReplicasSpec spec{.count = 2,
                          .gradients = *replicas::ParseGradients("local-sgd:steps=2,delay=0.5")};
  ReplicaPair pair(options, spec);
  pair.Skip(1);
  pair.Skip(2);
  const StageSnapshot before = pair.State();
  EXPECT_TRUE(ReplicaPair(options, spec, &before).AwaitsMerge());
  pair.Merge(2);
  const StageSnapshot behind = pair.State();
  EXPECT_FALSE(ReplicaPair(options, spec, &behind).AwaitsMerge());
}

INSTANTIATE_TEST_SUITE_P(Passes, BesideTheBackward,
                         ::testing::Values(std::tuple("none", Recompute::kNone, 1u),
                                           std::tuple("sdp4bit", Recompute::kBlocks, 1u),
                                           std::tuple("tagc:keep=0.1,least=2048", Recompute::kStage,
                                                      1u),
                                           std::tuple("sdp4bit", Recompute::kNone, 2u)));

}  // namespace
}  // namespace longhaul::worker
