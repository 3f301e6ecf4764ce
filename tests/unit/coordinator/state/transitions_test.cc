#include "coordinator/state/ledger/transitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/file.h"

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
  EXPECT_THAT(*page, HasSubstr("```mermaid\n" + DumpTransitions() + "```\n"))
      << "put what `longhaul-coordinator --dump-states` prints into docs/design/states.md";
}

}  // namespace
}  // namespace longhaul::coordinator
