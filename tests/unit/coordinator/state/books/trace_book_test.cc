#include "coordinator/state/books/trace_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/state/books/now.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const CellId kFirst{0, 0}, kSecond{0, 1};

v1::StageTrace Steps(int count, int spans = 1) {
  v1::StageTrace trace;
  for (int step = 1; step <= count; ++step) {
    v1::StepTrace& one = *trace.add_steps();
    one.set_step(static_cast<uint64_t>(step));
    for (int span = 0; span < spans; ++span) one.add_spans()->set_begin_ns(int64_t{1} << 60);
  }
  return trace;
}

class TraceBookTest : public ::testing::Test {
 protected:
  uint64_t Begin(uint64_t request = 9) {
    return book.Begin(RequestId(request), RunId("tiny-1"), Epoch(3), {kFirst, kSecond}, kNow);
  }
  TraceBook book;
};

TEST_F(TraceBookTest, PutsTheAnswersInTheOrderOfTheCells) {
  const uint64_t id = Begin();
  EXPECT_EQ(book.Find(id)->epoch, Epoch(3));
  v1::StageTrace second = Steps(2);
  second.mutable_cell()->set_stage(7);  // a worker does not say whose answer this is
  EXPECT_FALSE(book.Answer(id, kSecond, second));
  EXPECT_THAT(book.Find(id)->Missing(), ElementsAre(kFirst));
  EXPECT_TRUE(book.Answer(id, kFirst, Steps(1)));
  Trace trace = book.Take(id);
  EXPECT_EQ(trace.request, RequestId(9));
  Plan plan;
  plan.explanation = "because";
  const v1::TraceReply reply = std::move(trace).Reply(plan);
  EXPECT_EQ(reply.run_id(), "tiny-1");
  ASSERT_EQ(reply.stages_size(), 2);
  EXPECT_EQ(reply.stages(0).cell().stage(), 0u);
  EXPECT_EQ(reply.stages(0).steps_size(), 1);
  EXPECT_EQ(reply.stages(1).cell().stage(), 1u);
  EXPECT_EQ(reply.stages(1).steps_size(), 2);
  EXPECT_EQ(reply.plan().explanation(), "because");
  EXPECT_EQ(book.Find(id), nullptr);
}

TEST_F(TraceBookTest, AnswersOfNobodyCountForNothing) {
  const uint64_t id = Begin();
  EXPECT_FALSE(book.Answer(id + 1, kFirst, Steps(1)));
  EXPECT_FALSE(book.Answer(id, CellId{0, 2}, Steps(1)));
  EXPECT_FALSE(book.Answer(id, kFirst, Steps(1)));
  EXPECT_FALSE(book.Answer(id, kFirst, Steps(2)));  // the same cell again
  EXPECT_THAT(book.Find(id)->Missing(), ElementsAre(kSecond));
}

TEST_F(TraceBookTest, TheOldestStepsGiveWayToTheSizeOfAReply) {
  const uint64_t id = Begin();
  for (const CellId& cell : {kFirst, kSecond}) book.Answer(id, cell, Steps(8, 30'000));
  const v1::TraceReply reply = book.Take(id).Reply(Plan());
  EXPECT_LE(reply.ByteSizeLong(), size_t{3} << 20);
  for (const v1::StageTrace& stage : reply.stages()) {
    EXPECT_GE(stage.steps_size(), 1);
    EXPECT_LT(stage.steps_size(), 8);
    EXPECT_EQ(stage.steps().rbegin()->step(), 8u);
  }
}

TEST_F(TraceBookTest, WhatIsLateNamesWhoIsMissing) {
  EXPECT_EQ(book.NextWake(), MonoTime::max());
  const uint64_t id = Begin();
  book.Answer(id, kSecond, Steps(1));
  EXPECT_EQ(book.NextWake(), kNow + kTraceLimit);
  EXPECT_THAT(book.Late(kNow + kTraceLimit + -absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(book.Late(kNow + kTraceLimit), ElementsAre(id));
  EXPECT_THAT(book.Find(id)->Missing(), ElementsAre(kFirst));
}

TEST_F(TraceBookTest, AreFewAtOnce) {
  uint64_t newest = 0;
  for (uint64_t request = 1; request <= 4; ++request) {
    ASSERT_TRUE(book.MayBegin().ok());
    newest = Begin(request);
  }
  EXPECT_EQ(book.MayBegin().code(), absl::StatusCode::kResourceExhausted);
  book.Take(newest);
  EXPECT_TRUE(book.MayBegin().ok());
}

}  // namespace
}  // namespace longhaul::coordinator
