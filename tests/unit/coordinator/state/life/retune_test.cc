// Depths and order change while a run trains, in phases that are safe beside each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kAbc = {"a", "b", "c"};
constexpr uint64_t kSteps = 8;  // that count
constexpr uint32_t kMicrobatches = 8;

// Depth and lead of each stage.
using Settings = std::vector<std::pair<uint32_t, uint32_t>>;

class RetuneState : public ::testing::Test {
 protected:
  static StateOptions Options() {
    StateOptions options;
    options.progress_timeout = absl::Hours(24);  // nobody says anything while it waits
    return options;
  }
  void SetUp() override {
    c.retune_with = [this](const RunSpec&, const Plan& plan,
                           const Seen& seen) -> StatusOr<std::optional<Plan>> {
      ++considered_;
      seen_ = seen;
      if (fails_) return absl::InternalError("a stage waits for ever");
      if (!wanted_) return std::nullopt;
      Plan other = plan;
      ++other.retunes;
      other.retune_reason = "links are faster";
      other.prediction.cut_short = cut_short_;
      Put(*std::exchange(wanted_, std::nullopt), &other);
      return other;
    };
  }
  static void Put(const Settings& settings, Plan* plan) {
    for (size_t s = 0; s < settings.size(); ++s) {
      Setting& setting = plan->assignment.cells[s].setting;
      std::tie(setting.depth, setting.activation_lead) = settings[s];
    }
  }

  // Trains with these settings, whatever the planner would have.
  void Train(const Settings& settings) {
    RunSpec spec = SmallSpec("tiny", 3);
    spec.session_timeout = absl::Hours(24);  // nobody says anything while it waits
    spec.train.steps = 1000;
    spec.train.microbatches = kMicrobatches;
    for (const std::string& worker : kAbc) c.Join(worker);
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAbc, "tiny-1");
    ASSERT_EQ(c.StateOf("tiny-1"), "running");
    wanted_ = settings;
    RunSteps(kSteps);
    while (!Holds(settings)) {
      const uint64_t asked = AcknowledgeAll();
      if (asked == 0) break;
    }
    ASSERT_EQ(SettingsOfPlan(), settings);
    Wait(absl::Minutes(1));
  }
  void RunSteps(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) c.Steps(kAbc, "tiny-1", ++step_);
  }
  // They differ from what was considered last.
  void RunSlowSteps(uint64_t count) {
    slowness_ *= 2;
    for (uint64_t i = 0; i < count; ++i) {
      ++step_;
      for (uint32_t s = 0; s < 3; ++s) {
        v1::StepReport report = c.Report(step_, s, 3);
        report.set_forward_seconds(slowness_);
        c.Step(kAbc[s], "tiny-1", report);
      }
    }
  }
  // In steps: a tick that comes late shows that the coordinator was asleep.
  void Wait(absl::Duration duration) {
    for (absl::Duration waited; waited < duration; waited += absl::Seconds(1)) {
      c.Advance(absl::Seconds(1));
      c.Tick();
    }
  }
  const v1::Retune* Asked(const std::string& worker) const {
    const v1::WorkerCommand* command = c.Last(worker, v1::WorkerCommand::kRetune);
    return command == nullptr ? nullptr : &command->retune();
  }
  int Count(const std::string& worker) const { return c.Count(worker, v1::WorkerCommand::kRetune); }
  void Acknowledge(const std::string& worker, std::optional<uint64_t> id = {}) {
    const v1::Retune* asked = Asked(worker);
    ASSERT_NE(asked, nullptr) << worker;
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_retuned()->set_retune(id.value_or(asked->retune()));
    message.mutable_retuned()->set_step(step_ + 1);
    holds_[worker] = {asked->depth(), asked->has_activation_lead() ? asked->activation_lead()
                                                                   : holds_[worker].second};
    c.Tick(c.Said(worker, message));
  }
  uint64_t AcknowledgeAll() {
    if (Asked("a") == nullptr || Asked("a")->retune() == answered_) return 0;
    answered_ = Asked("a")->retune();
    for (const std::string& worker : kAbc) Acknowledge(worker);
    return answered_;
  }
  bool Holds(const Settings& settings) {
    for (size_t s = 0; s < 3; ++s) {
      if (holds_[kAbc[s]] != settings[s]) return false;
    }
    return true;
  }
  Settings SettingsOfPlan() const {
    Settings settings;
    for (const Cell& cell : c.records.at("tiny-1").plan->assignment.cells) {
      settings.emplace_back(cell.setting.depth, cell.setting.activation_lead);
    }
    return settings;
  }
  Settings AskedOfAll() const {
    Settings settings;
    for (const std::string& worker : kAbc) {
      settings.emplace_back(Asked(worker)->depth(), Asked(worker)->activation_lead());
    }
    return settings;
  }
  std::string Events() const {
    std::string all;
    for (const v1::Event& event : c.events) {
      if (event.kind() == "plan") all += event.text() + "\n";
    }
    return all;
  }

  std::optional<Settings> wanted_;
  bool fails_ = false;
  int considered_ = 0;
  Seen seen_;
  uint64_t step_ = 0, answered_ = 0;
  double slowness_ = 1;
  std::map<std::string, std::pair<uint32_t, uint32_t>> holds_;
  std::string cut_short_;
  Coordinator c{{}, Options()};
};

const Settings kShallow = {{4, 0}, {3, 2}, {2, 1}};
const Settings kDeep = {{8, 0}, {7, 6}, {2, 2}};

TEST_F(RetuneState, ThePlanIsConsideredByTheMediansOfSomeSteps) {
  Train(kShallow);
  EXPECT_EQ(considered_, 1);
  EXPECT_EQ(seen_.cells.size(), 3u);
  EXPECT_EQ(seen_.edges.size(), 2u);
  RunSlowSteps(kSteps - 1);
  EXPECT_EQ(considered_, 1);
  RunSlowSteps(1);
  EXPECT_EQ(considered_, 2);
  // Nothing differs from then on.
  Wait(absl::Hours(2));
  slowness_ /= 2;
  RunSlowSteps(3 * kSteps);
  EXPECT_EQ(considered_, 3) << "once more, when all steps of the window are alike";
  Wait(absl::Hours(2));
  RunSlowSteps(kSteps);
  EXPECT_EQ(considered_, 4);
}

TEST_F(RetuneState, DepthsGrowBeforeLeadsDo) {
  Train(kShallow);
  c.commands.clear();
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  EXPECT_EQ(SettingsOfPlan(), kDeep) << "stored when it is decided";
  EXPECT_THAT(Events(), HasSubstr("change after step 16: links are faster"));
  EXPECT_EQ(AskedOfAll(), (Settings{{8, 0}, {7, 2}, {2, 1}}));
  Acknowledge("a");
  Acknowledge("c");
  EXPECT_EQ(Count("b"), 1);
  Acknowledge("b");
  EXPECT_EQ(AskedOfAll(), kDeep);
  const std::string before = Events();
  AcknowledgeAll();
  EXPECT_EQ(Count("a"), 2) << "depths that do not shrink are not asked for again";
  EXPECT_EQ(Events(),
            before + "from step 17 on all stages have the depths and the order of the plan\n");
}

TEST_F(RetuneState, LeadsShrinkBeforeDepthsDo) {
  Train(kDeep);
  c.commands.clear();
  wanted_ = kShallow;
  RunSlowSteps(kSteps);
  EXPECT_EQ(AskedOfAll(), (Settings{{8, 0}, {7, 2}, {2, 1}}));
  AcknowledgeAll();
  EXPECT_EQ(AskedOfAll(), kShallow);
  AcknowledgeAll();
  EXPECT_EQ(Count("a"), 2);
}

TEST_F(RetuneState, OnlyTheAnswerToTheNewestCounts) {
  Train(kShallow);
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  const int asked = Count("a");
  for (const std::string& worker : kAbc) Acknowledge(worker, Asked(worker)->retune() + 1);
  for (int i = 0; i < 3; ++i) Acknowledge("a");
  EXPECT_EQ(Count("a"), asked);
}

TEST_F(RetuneState, WhoWasAwayIsAskedAgain) {
  Train(kShallow);
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  Acknowledge("a");
  for (const char* worker : {"a", "b"}) {
    c.Join(HelloAt(worker, "tiny-1", worker == std::string("a") ? 0 : 1));
  }
  EXPECT_EQ(Count("a"), 0) << "in its new session";
  EXPECT_EQ(Count("b"), 1);
}

TEST_F(RetuneState, ACoordinatorThatWasRestartedMakesSure) {
  Train(kShallow);
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  c.commands.clear();
  c.Restart();
  for (uint32_t s = 0; s < 3; ++s) c.Join(HelloAt(kAbc[s], "tiny-1", s));
  // Every lead is safe beside the most depths that there can be.
  for (const std::string& worker : kAbc) {
    ASSERT_NE(Asked(worker), nullptr);
    EXPECT_EQ(Asked(worker)->depth(), kMicrobatches);
    EXPECT_FALSE(Asked(worker)->has_activation_lead());
  }
  answered_ = 0;
  AcknowledgeAll();
  EXPECT_EQ(AskedOfAll(), (Settings{{8, 0}, {8, 6}, {8, 2}}));
  AcknowledgeAll();
  EXPECT_EQ(AskedOfAll(), kDeep);
}

TEST_F(RetuneState, ARunThatEndsChangesNothingMore) {
  Train(kShallow);
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  const int asked = Count("a");
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  for (const std::string& worker : kAbc) Acknowledge(worker);
  EXPECT_EQ(Count("a"), asked);
  const int considered = considered_;
  RunSlowSteps(kSteps);
  EXPECT_EQ(considered_, considered);
}

TEST_F(RetuneState, WhatCannotBeSimulatedIsSaid) {
  Train(kShallow);
  fails_ = true;
  RunSlowSteps(kSteps);
  EXPECT_THAT(Events(), HasSubstr("stay as they are after step 16, because what is measured cannot "
                                  "be simulated: a stage waits for ever"));
  EXPECT_EQ(SettingsOfPlan(), kShallow);
}

TEST_F(RetuneState, NothingIsConsideredWhileAChangeIsUnderWayOrSoonAfter) {
  Train(kShallow);
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  EXPECT_EQ(considered_, 2);
  Wait(absl::Hours(1));
  RunSlowSteps(kSteps);
  EXPECT_EQ(considered_, 2) << "under way";
  AcknowledgeAll();
  AcknowledgeAll();
  RunSlowSteps(kSteps);
  EXPECT_EQ(considered_, 3);
  RunSlowSteps(kSteps);
  EXPECT_EQ(considered_, 3) << "soon after";
}

TEST_F(RetuneState, StepsGoOnWhileABetterPlanIsComputed) {
  Train(kShallow);
  c.plans_are_computed = false;
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  c.Forget();
  RunSlowSteps(3 * kSteps);
  Wait(absl::Hours(1));
  RunSlowSteps(kSteps);
  EXPECT_EQ(c.LastReply<command::ComputeRetune>(), nullptr) << "one at a time";
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), step_);
  EXPECT_EQ(SettingsOfPlan(), kShallow);
}

TEST_F(RetuneState, WhoMovesMeanwhileIsWhereItMovedTo) {
  Train(kShallow);
  c.plans_are_computed = false;
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  v1::Hello moved = HelloAt("a", "tiny-1", 0);
  moved.mutable_endpoints(0)->set_addresses(0, "elsewhere:7");
  c.Join(moved);
  c.Computed();
  EXPECT_EQ(SettingsOfPlan(), kDeep);
  EXPECT_EQ(c.records.at("tiny-1").plan->assignment.cells[0].endpoints[0].addresses[0],
            "elsewhere:7");
}

TEST_F(RetuneState, AnEpochThatIsOverWaitsForNoPlan) {
  Train(kShallow);
  c.plans_are_computed = false;
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  const ComputationId asked = c.LastReply<command::ComputeRetune>()->id;
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  ASSERT_NE(c.LastReply<command::CancelComputation>(), nullptr);
  EXPECT_EQ(c.LastReply<command::CancelComputation>()->id, asked);
  c.Computed();  // too late
  EXPECT_EQ(SettingsOfPlan(), kShallow);
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
}

TEST_F(RetuneState, ASearchThatWasCutShortIsSaid) {
  Train(kShallow);
  cut_short_ = "the search stopped";
  wanted_ = kDeep;
  RunSlowSteps(kSteps);
  EXPECT_THAT(Events(), HasSubstr("the plan may not be the best: the search stopped"));
}

}  // namespace
}  // namespace longhaul::coordinator
