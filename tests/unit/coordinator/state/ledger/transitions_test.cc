#include "coordinator/state/ledger/transitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"
#include "coordinator/state/ledger/stage_record.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(Transitions, StateAndTriggerNameOneRow) {
  std::set<std::pair<RunState, Trigger>> seen;
  for (const Transition& row : Transitions()) {
    EXPECT_TRUE(seen.insert({row.from, row.trigger}).second)
        << ToString(row.from) << " " << ToString(row.trigger);
    EXPECT_EQ(FindTransition(row.from, row.trigger), &row);
    EXPECT_FALSE(row.why.empty());
  }
}

TEST(Transitions, EveryStateIsReached) {
  std::set<RunState> reached = {RunState::kQueued};
  for (size_t round = 0; round < Transitions().size(); ++round) {
    for (const Transition& row : Transitions()) {
      if (reached.contains(row.from)) reached.insert(row.to);
    }
  }
  EXPECT_EQ(reached.size(), 9u);
}

TEST(Transitions, WhatHasEndedIsOnlyLeftByResume) {
  for (const Transition& row : Transitions()) {
    if (HasEnded(row.from)) {
      EXPECT_EQ(row.trigger, Trigger::kResumed);
    }
  }
}

TEST(Transitions, EveryActiveStateCanFailAndBeStopped) {
  for (const RunState state : {RunState::kPlanning, RunState::kPreparing, RunState::kRunning,
                               RunState::kFinishing, RunState::kRecovering}) {
    for (const Trigger trigger : {Trigger::kFailure, Trigger::kStopAsked}) {
      const Transition* row = FindTransition(state, trigger);
      ASSERT_NE(row, nullptr) << ToString(state);
      EXPECT_EQ(row->action, Action::kAbortAndRelease);
    }
  }
}

TEST(Transitions, DiagramHasEveryRow) {
  const std::string text = DumpTransitions();
  EXPECT_THAT(text, HasSubstr("stateDiagram-v2"));
  for (const Transition& row : Transitions()) {
    const std::string edge = std::string(ToString(row.from)) + " --> " +
                             std::string(ToString(row.to)) + " : " +
                             std::string(ToString(row.trigger));
    EXPECT_THAT(text, HasSubstr(edge));
  }
}

TEST(Transitions, TheDiagramInTheDocumentationIsThisOne) {
  const StatusOr<std::string> page =
      ReadFile(LONGHAUL_SOURCE_DIR "/docs/design/states.md", 1 << 20);
  ASSERT_TRUE(page.ok()) << page.status();
  for (const std::string& diagram : {DumpTransitions(), DumpPhases(), DumpPresences()}) {
    EXPECT_THAT(*page, HasSubstr("```mermaid\n" + diagram + "```\n"))
        << "put what `longhaul-coordinator --dump-states` prints into docs/design/states.md";
  }
}

template <class T>
void ExpectOneRowEach(std::span<const StageTransition<T>> rows) {
  std::set<std::pair<T, StageTrigger>> seen;
  for (const StageTransition<T>& row : rows) {
    EXPECT_TRUE(seen.insert({row.from, row.trigger}).second)
        << ToString(row.from) << " " << ToString(row.trigger);
    EXPECT_FALSE(row.why.empty());
  }
}

TEST(StageTransitions, StateAndTriggerNameOneRow) {
  ExpectOneRowEach(PhaseTransitions());
  ExpectOneRowEach(PresenceTransitions());
}

TEST(StageTransitions, ATriggerWithoutARowChangesNothing) {
  StageRecord stage;
  EXPECT_FALSE(stage.MovePhase(StageTrigger::kSaidFinished)) << "it is not ready";
  EXPECT_EQ(stage.phase, StagePhase::kPreparing);
  EXPECT_TRUE(stage.MovePhase(StageTrigger::kSaidReady));
  EXPECT_TRUE(stage.MovePhase(StageTrigger::kSaidStarted));
  EXPECT_TRUE(stage.MovePhase(StageTrigger::kSaidStopped));
  EXPECT_TRUE(stage.HasFinished());
  EXPECT_FALSE(stage.MovePhase(StageTrigger::kSaidStarted)) << "it has ended";
  EXPECT_TRUE(stage.MovePhase(StageTrigger::kEpochEnded));
  EXPECT_EQ(stage.phase, StagePhase::kPreparing);
}

TEST(StageTransitions, OnlyADetachedStageHasADetachment) {
  StageRecord stage;
  stage.Detach(StageTrigger::kSessionEnded, {.why = "it had no session"});
  EXPECT_FALSE(stage.detached.has_value());
  EXPECT_TRUE(stage.MovePresence(StageTrigger::kSessionBegan));
  stage.Detach(StageTrigger::kSessionEnded, {.why = "its session ended"});
  ASSERT_TRUE(stage.detached.has_value());
  EXPECT_EQ(stage.presence, Presence::kDetached);
  EXPECT_TRUE(stage.MovePresence(StageTrigger::kLost));
  EXPECT_FALSE(stage.detached.has_value());
  EXPECT_EQ(stage.presence, Presence::kAway);
}

}  // namespace
}  // namespace longhaul::coordinator
