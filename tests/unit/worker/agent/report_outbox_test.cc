#include "worker/agent/report_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::WorkerMessage StepOf(uint64_t epoch, uint64_t step) {
  v1::WorkerMessage message;
  message.set_run_id("run");
  message.set_epoch(epoch);
  message.mutable_step()->set_step(step);
  return message;
}

v1::WorkerMessage Line(const std::string& text) {
  v1::WorkerMessage message;
  message.mutable_log()->set_text(text);
  return message;
}

std::string Text(const v1::WorkerMessage& message) {
  return message.has_log()
             ? message.log().text()
             : std::to_string(message.epoch()) + ":" + std::to_string(message.step().step());
}

// All that waits is written.
std::vector<std::string> Say(ReportOutbox* outbox) {
  std::vector<std::string> said;
  while (const v1::WorkerMessage* next = outbox->Next()) {
    said.push_back(Text(*next));
    outbox->Written();
  }
  return said;
}

TEST(ReportOutbox, SaysAllOnceInOrderInOneSession) {
  ReportOutbox outbox;
  outbox.BeginSession();
  outbox.Push(StepOf(1, 1));
  outbox.Push(Line("a"));
  outbox.Push(StepOf(1, 2));
  EXPECT_THAT(Say(&outbox), ElementsAre("1:1", "a", "1:2"));
  EXPECT_THAT(Say(&outbox), IsEmpty());
}

TEST(ReportOutbox, ANewSessionBeginsWithTheReportsOfTheOneBefore) {
  ReportOutbox outbox;
  outbox.Push(StepOf(1, 1));
  outbox.Push(Line("a"));
  Say(&outbox);
  outbox.Push(StepOf(1, 2));
  outbox.BeginSession();
  EXPECT_THAT(Say(&outbox), ElementsAre("1:1", "1:2"));
  outbox.BeginSession();
  EXPECT_THAT(Say(&outbox), ElementsAre("1:1", "1:2"));
}

TEST(ReportOutbox, WhatWasNotWrittenStaysAtTheFront) {
  ReportOutbox outbox;
  outbox.Push(StepOf(1, 1));
  ASSERT_NE(outbox.Next(), nullptr);
  outbox.BeginSession();
  EXPECT_THAT(Say(&outbox), ElementsAre("1:1"));
}

TEST(ReportOutbox, ReportsOfAnOlderEpochAreNotSaidAgain) {
  ReportOutbox outbox;
  outbox.Push(StepOf(1, 1));
  outbox.Push(StepOf(2, 1));
  outbox.Push(StepOf(2, 2));
  Say(&outbox);
  outbox.BeginSession();
  EXPECT_THAT(Say(&outbox), ElementsAre("2:1", "2:2"));
}

TEST(ReportOutbox, LogLinesAreTheFirstToBeDropped) {
  ReportOutbox outbox;
  for (int i = 0; i < 2'000; ++i) outbox.Push(Line("a"));
  outbox.Push(StepOf(1, 1));
  const std::vector<std::string> said = Say(&outbox);
  EXPECT_THAT(said, SizeIs(1'001));
  EXPECT_EQ(said.back(), "1:1");
}

TEST(ReportOutbox, OfVeryManyReportsTheNewestAreSaidAgain) {
  ReportOutbox outbox;
  for (uint64_t step = 1; step <= 5'000; ++step) outbox.Push(StepOf(1, step));
  Say(&outbox);
  outbox.BeginSession();
  const std::vector<std::string> again = Say(&outbox);
  EXPECT_THAT(again, SizeIs(4'096));
  EXPECT_EQ(again.front(), "1:905");
  EXPECT_EQ(again.back(), "1:5000");
}

}  // namespace
}  // namespace longhaul::worker
