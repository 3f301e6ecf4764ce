// A step that all replicas leave out takes nothing from what earlier steps did not send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "two_replicas.h"

namespace longhaul::replicas {
namespace {

using ::testing::HasSubstr;

constexpr char kDenseOwner[] = "tagc:keep=0.02,least=1000";
constexpr char kSelectingOwner[] = "tagc:keep=0.02,least=1000,owner=sparse";

// All replicas of a run whose steps may be skipped.
class SkippingReplicas {
 public:
  SkippingReplicas(const std::string& form, uint32_t count, bool may_skip = true) {
    for (uint32_t r = 0; r < count; ++r) {
      replicas_.push_back(std::make_unique<HandHeld>(r, form, "fp32", count, may_skip));
    }
  }
  HandHeld& operator[](size_t replica) { return *replicas_[replica]; }
  size_t size() const { return replicas_.size(); }

  void Give(uint64_t step) {
    for (auto& replica : replicas_) {
      const Status status = replica->Give(step);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // Carries all messages, but those of kind `late` to replica 0 stay in `held`.
  void CarryAll(std::optional<MessageKind> late = std::nullopt) {
    for (bool any = true; any;) {
      any = false;
      for (uint32_t from = 0; from < replicas_.size(); ++from) {
        for (Sent& sent : replicas_[from]->outbox.TakeAll()) {
          any = true;
          if (sent.to == 0 && sent.kind == late) {
            held.emplace_back(from, std::move(sent.bytes));
            continue;
          }
          const Status status = replicas_[sent.to]->reducer->Take(from, std::move(sent.bytes));
          ASSERT_TRUE(status.ok()) << status;
        }
      }
    }
  }
  void Apply(uint64_t step) {
    Give(step);
    CarryAll();
    for (auto& replica : replicas_) ASSERT_TRUE(replica->Publish().ok());
    CarryAll();
  }
  void Skip() {
    for (auto& replica : replicas_) {
      const Status status = replica->reducer->SkipStep();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(replica->reducer->IsDone());
    }
  }
  // Everything that a checkpoint has of these replicas.
  std::vector<std::vector<float>> State() const {
    std::vector<std::vector<float>> all;
    for (const auto& replica : replicas_) {
      for (const StateTensor& tensor : replica->reducer->State()) {
        all.emplace_back(tensor.values.begin(), tensor.values.end());
      }
    }
    return all;
  }
  std::vector<float> Residual(size_t replica) const {
    for (const StateTensor& tensor : replicas_[replica]->reducer->State()) {
      if (tensor.name == "w.residual") return {tensor.values.begin(), tensor.values.end()};
    }
    ADD_FAILURE() << "no residual of w";
    return {};
  }

  std::vector<std::pair<uint32_t, std::vector<std::byte>>> held;

 private:
  std::vector<std::unique_ptr<HandHeld>> replicas_;
};

class SkippedStep : public ::testing::TestWithParam<std::tuple<const char*, uint32_t>> {};

TEST_P(SkippedStep, LeavesStateAndParametersToTheBit) {
  const auto& [form, count] = GetParam();
  SkippingReplicas replicas(form, count);
  replicas.Apply(1);
  const auto state = replicas.State();
  const auto values = replicas[0].values();
  // The first element is in a shard of one owner: the other shards are sent as ever.
  const float good = std::exchange(replicas[1].gradients()[0][0], NAN);
  replicas.Give(2);
  replicas.CarryAll();
  replicas.Skip();
  replicas[1].gradients()[0][0] = good;
  EXPECT_EQ(state, replicas.State());
  for (size_t r = 0; r < replicas.size(); ++r) EXPECT_EQ(values, replicas[r].values());
}

// Whatever was given in the other steps has been applied, or waits in a residual.
TEST_P(SkippedStep, LosesNoGradientBeforeOrBehind) {
  const auto& [form, count] = GetParam();
  SkippingReplicas replicas(form, count);
  constexpr uint64_t kSteps = 5, kSkipped = 3;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    if (step != kSkipped) {
      replicas.Apply(step);
      continue;
    }
    const float good =
        std::exchange(replicas[1].gradients()[0][0], std::numeric_limits<float>::infinity());
    replicas.Give(step);
    replicas.CarryAll();
    replicas.Skip();
    replicas[1].gradients()[0][0] = good;
  }
  std::vector<double> wants(HandHeld::kMatrix), has(HandHeld::kMatrix);
  for (size_t r = 0; r < count; ++r) {
    const std::vector<float> residual = replicas.Residual(r);
    for (size_t k = 0; k < wants.size(); ++k) {
      wants[k] += double{kSteps - 1} * replicas[r].gradients()[0][k];
      has[k] += residual[k];
    }
  }
  // Values began as zeros, and each step subtracted the mean.
  for (size_t k = 0; k < has.size(); ++k)
    has[k] -= static_cast<double>(count) * replicas[0].values()[0][k];
  for (size_t k = 0; k < has.size(); ++k) ASSERT_NEAR(has[k], wants[k], 2e-5) << k;
}

INSTANTIATE_TEST_SUITE_P(Forms, SkippedStep,
                         ::testing::Combine(::testing::Values("sdp4bit:feedback=on", kDenseOwner,
                                                              kSelectingOwner),
                                            ::testing::Values(2u, 3u)));

TEST(SkippedStepOfThree, TakesAUnionThatComesAfterIt) {
  SkippingReplicas replicas(kDenseOwner, 3);
  replicas.Apply(1);
  const float good = std::exchange(replicas[2].gradients()[0][HandHeld::kMatrix / 2], NAN);
  replicas.Give(2);
  replicas.CarryAll(MessageKind::kUnion);
  ASSERT_FALSE(replicas.held.empty());
  // Unions of the other owners have to be answered, or these would wait.
  std::vector<std::pair<uint32_t, std::vector<std::byte>>> late;
  for (auto& [from, message] : std::exchange(replicas.held, {})) {
    if (replicas[from].reducer->IsReduced(0)) {
      late.emplace_back(from, std::move(message));
    } else {
      ASSERT_TRUE(replicas[0].reducer->Take(from, std::move(message)).ok());
    }
  }
  replicas.CarryAll();
  ASSERT_EQ(late.size(), 1u);
  replicas.Skip();
  replicas[2].gradients()[0][HandHeld::kMatrix / 2] = good;
  replicas.Give(3);
  const Status status = replicas[0].reducer->Take(late[0].first, late[0].second);
  EXPECT_TRUE(status.ok()) << status;
  replicas.CarryAll();
  for (size_t r = 0; r < 3; ++r) EXPECT_TRUE(replicas[r].reducer->IsReduced(0));
}

TEST(SkippedStepWithoutACopy, IsRefused) {
  SkippingReplicas replicas(kDenseOwner, 2, /*may_skip=*/false);
  replicas.Give(1);
  replicas.CarryAll();
  EXPECT_THAT(replicas[0].reducer->SkipStep().message(), HasSubstr("may_skip"));
}

// owner=sparse changes what the owner adds, and no message.
TEST(OwnersThatSelect, SendTheSameBytes) {
  HandHeld dense(0, kDenseOwner, "fp32"), selecting(0, kSelectingOwner, "fp32");
  ASSERT_TRUE(dense.Give(1).ok() && selecting.Give(1).ok());
  const auto expected = dense.outbox.TakeAll(), got = selecting.outbox.TakeAll();
  ASSERT_EQ(expected.size(), got.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const auto payload = PayloadOf(std::span<const std::byte>(got[k].bytes));
    const auto payload_of_dense = PayloadOf(std::span<const std::byte>(expected[k].bytes));
    EXPECT_TRUE(std::ranges::equal(payload, payload_of_dense));
  }
}

}  // namespace
}  // namespace longhaul::replicas
