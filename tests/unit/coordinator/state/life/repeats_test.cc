// Steps that are trained again after a loss: the same numbers where they are promised, else the run
// ends; where they are not, their difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Repeating : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& worker : kAbc) c.Join(worker);
    RunSpec spec = SmallSpec("tiny", 3);
    spec.recovery.attempts = 5;
    spec.train.steps = 20;
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAbc, "tiny-1");
    Train(1, 5);
    c.Shards(kAbc, "tiny-1", 2);
  }
  using Change = std::function<void(uint32_t stage, v1::StepReport&)>;
  // All stages report the steps, as `change` has them.
  void Train(uint64_t first, uint64_t last, const Change& change = {}) {
    for (uint64_t step = first; step <= last; ++step) {
      for (uint32_t stage = 0; stage < kAbc.size(); ++stage) {
        v1::StepReport report = c.Report(step, stage, 3);
        report.set_squared_norm(1 + stage);
        report.set_numerics(100 + stage);
        if (change) change(stage, report);
        c.Step(kAbc[stage], "tiny-1", report);
      }
    }
  }
  void KillB() { c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}}); }
  // Step 5 was finished, and the run goes on from step 2.
  void GoBack() {
    KillB();
    c.Join(HelloOf("b", std::to_string(++incarnation_)));
    for (const std::string& worker : kAbc) c.Ready(worker, "tiny-1", 2);
    ASSERT_EQ(c.StateOf("tiny-1"), "running");
  }
  int EventsWith(const std::string& text) const {
    return static_cast<int>(std::ranges::count_if(c.events, [&](const v1::Event& event) {
      return event.text().find(text) != std::string::npos;
    }));
  }

  const std::vector<std::string> kAbc = {"a", "b", "c"};
  Coordinator c;

 private:
  int incarnation_ = 1;
};

TEST_F(Repeating, TheSameBitsAreOneEvent) {
  GoBack();
  Train(3, 4);
  EXPECT_EQ(EventsWith("repeated and gave"), 0);
  Train(5, 7);
  EXPECT_EQ(EventsWith("steps 3 to 5 were repeated and gave the same losses, bit for bit"), 1);
  EXPECT_EQ(EventsWith("repeated and gave"), 1);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Repeating, ARowHasEachStagesPart) {
  const v1::StepRecord& row = c.steps["tiny-1"][5];
  EXPECT_THAT(row.squared_norms(), ::testing::ElementsAre(1, 2, 3));
  EXPECT_NE(row.numerics(), 0u);
}

TEST_F(Repeating, APartThatDiffersEndsTheRun) {
  GoBack();
  Train(3, 3);
  // What b gives wrongly, a gets and passes on.
  Train(4, 4, [](uint32_t stage, v1::StepReport& report) {
    if (stage <= 1) report.set_squared_norm(std::nextafter(report.squared_norm(), 9));
    if (stage == 0) report.set_gradient_norm(2.5);
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              AllOf(HasSubstr("step 4 was repeated and gave other numbers"),
                    HasSubstr("the gradient norm was 2 and is 2.5"),
                    HasSubstr("the part of worker b (stage 1) in the squared norm was 2 and is "
                              "2.0000000000000004"),
                    HasSubstr("the first or the second time, in worker b (stage 1);"),
                    HasSubstr("--resume goes on from step 2")));
  EXPECT_THAT(c.ReasonOf("tiny-1"), Not(HasSubstr("the loss")));
  EXPECT_EQ(c.steps["tiny-1"][4].gradient_norm(), 2) << "what it had been stays on record";
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 3u);
}

TEST_F(Repeating, ALossThatDiffersMayComeFromAnyStageWhosePartDoes) {
  GoBack();
  Train(3, 3, [](uint32_t stage, v1::StepReport& report) {
    if (stage == 2) report.set_loss(4.75);
    if (stage != 1) report.set_squared_norm(9);
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              AllOf(HasSubstr("the loss was 4.7 and is 4.75"),
                    HasSubstr("in one of worker a (stage 0), worker c (stage 2), whose parts of "
                              "the gradient norm differ, in this step or one before")));
}

TEST_F(Repeating, WhereAStageComputesOtherwiseTheDifferenceIsAnEvent) {
  GoBack();
  Train(3, 6, [](uint32_t stage, v1::StepReport& report) {
    if (stage == 1) report.set_numerics(7);
    if (stage == 2 && report.step() >= 4) report.set_loss(report.loss() + 0.5);
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(EventsWith("steps 3 to 5 were repeated and gave other numbers from step 4 on: losses "
                       "differ by up to 0.5, gradient norms by up to 0; devices, threads"),
            1);
}

// Such as a GPU's atomic additions.
TEST_F(Repeating, WhereSumsHaveAnyOrderTheDifferenceIsAnEvent) {
  const auto in_any_order = [](uint32_t stage, v1::StepReport& report) {
    if (stage == 0) report.set_numerics(0);
    if (stage == 0) report.set_gradient_norm(2 + 0.25 * static_cast<double>(report.step() % 2));
  };
  Train(6, 6, in_any_order);
  c.Shards(kAbc, "tiny-1", 6);
  Train(7, 8, in_any_order);
  KillB();
  c.Join(HelloOf("b", "9"));
  for (const std::string& worker : kAbc) c.Ready(worker, "tiny-1", 6);
  Train(7, 8, [](uint32_t stage, v1::StepReport& report) {
    if (stage == 0) report.set_numerics(0);
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(EventsWith("steps 7 to 8 were repeated and gave other numbers from step 7 on: losses "
                       "differ by up to 0, gradient norms by up to 0.25; some stages compute sums "
                       "in any order"),
            1);
}

TEST_F(Repeating, ItIsComparedAfterARestartOfTheCoordinator) {
  KillB();
  c.Restart();
  for (const std::string& worker : kAbc) c.Join(HelloOf(worker, worker == "b" ? "2" : "1"));
  for (const std::string& worker : kAbc) c.Ready(worker, "tiny-1", 2);
  ASSERT_EQ(c.StateOf("tiny-1"), "running");
  Train(3, 3);
  Train(4, 4, [](uint32_t stage, v1::StepReport& report) {
    if (stage == 2) report.set_squared_norm(9);
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("step 4 was repeated and gave other numbers"));
}

TEST_F(Repeating, WhatIsToldAgainAfterARestartIsNoRepeat) {
  c.Restart();
  for (uint32_t s = 0; s < 3; ++s) c.Join(HelloAt(kAbc[s], "tiny-1", s));
  Train(3, 6);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 6u);
  EXPECT_EQ(EventsWith("repeated"), 0);
}

// Who resumes after such an end has decided.
TEST_F(Repeating, AUsersResumeComparesNothing) {
  GoBack();
  const auto wrong = [](uint32_t stage, v1::StepReport& report) {
    if (stage == 2) report.set_squared_norm(9);
  };
  Train(3, 3, wrong);
  ASSERT_EQ(c.StateOf("tiny-1"), "failed");
  RunSpec spec = c.records.at("tiny-1").spec;
  c.Tick(SubmitOf(spec, "other", 2, /*resume=*/true));
  c.ToRunning(kAbc, "tiny-1", 2);
  Train(3, 6, wrong);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 6u);
}

}  // namespace
}  // namespace longhaul::coordinator
