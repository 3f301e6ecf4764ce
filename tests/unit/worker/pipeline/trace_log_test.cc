#include "worker/pipeline/trace_log.h"

#include <gtest/gtest.h>

#include "proto/rpc/channel.h"

namespace longhaul::worker {
namespace {

const MonoTime kBegin = MonoTime() + absl::Seconds(100);

void AddStep(TraceLog& log, uint64_t step, uint32_t spans) {
  const MonoTime begin = kBegin + absl::Seconds(step);
  for (uint32_t i = 0; i < spans; ++i) {
    log.Add({.kind = v1::Span::FORWARD,
             .slice = Microbatch(i),
             .begin = begin + absl::Milliseconds(i),
             .end = begin + absl::Milliseconds(i + 1)});
  }
  log.EndStep(Step(step), begin, begin + absl::Milliseconds(900));
}

TEST(TraceLog, HasNothingBeforeTheFirstStepEnds) {
  TraceLog log;
  log.Add({.kind = v1::Span::FORWARD, .begin = kBegin, .end = kBegin});
  EXPECT_EQ(log.Take(0).steps_size(), 0);
}

TEST(TraceLog, GivesTheLastStepsOldestFirst) {
  TraceLog log;
  for (uint64_t step = 1; step <= 20; ++step) AddStep(log, step, 3);
  const v1::StageTrace all = log.Take(0);
  ASSERT_EQ(all.steps_size(), static_cast<int>(TraceLog::kSteps));
  EXPECT_EQ(all.steps(0).step(), 20 - TraceLog::kSteps + 1);
  EXPECT_FALSE(all.clock_id().empty());
  const v1::StageTrace two = log.Take(2);
  ASSERT_EQ(two.steps_size(), 2);
  EXPECT_EQ(two.steps(0).step(), 19u);
  EXPECT_EQ(two.steps(1).begin_ns(), 120'000'000'000);
  EXPECT_EQ(two.steps(1).end_ns(), 120'900'000'000);
  ASSERT_EQ(two.steps(1).spans_size(), 3);
  EXPECT_EQ(two.steps(1).spans(2).microbatch(), 2u);
  EXPECT_EQ(two.steps(1).spans(2).begin_ns(), 2'000'000);
  EXPECT_EQ(two.steps(1).spans(2).length_ns(), 1'000'000);
  EXPECT_EQ(log.Take(100).steps_size(), static_cast<int>(TraceLog::kSteps));
}

// A neighbour that is through with its step sends for the next one.
TEST(TraceLog, WhatEndsTooEarlyOrLateBelongsToItsStep) {
  TraceLog log;
  const auto receive = [&](uint64_t step, uint32_t microbatch) {
    log.Add({.kind = v1::Span::RECEIVE,
             .step = Step(step),
             .slice = Microbatch(microbatch),
             .begin = kBegin,
             .end = kBegin + absl::Milliseconds(1)});
  };
  receive(1, 0);
  receive(2, 0);
  receive(1, 1);
  receive(3, 0);
  AddStep(log, 1, 1);
  receive(2, 1);
  AddStep(log, 2, 0);
  receive(2, 2);
  AddStep(log, 3, 0);
  const v1::StageTrace trace = log.Take(0);
  ASSERT_EQ(trace.steps_size(), 3);
  EXPECT_EQ(trace.steps(0).spans_size(), 3);
  ASSERT_EQ(trace.steps(1).spans_size(), 3);
  EXPECT_EQ(trace.steps(1).spans(0).microbatch(), 0u);
  EXPECT_LT(trace.steps(1).spans(0).begin_ns(), 0);
  EXPECT_EQ(trace.steps(1).spans(1).microbatch(), 1u);
  EXPECT_EQ(trace.steps(2).spans_size(), 1);
}

TEST(TraceLog, IsBounded) {
  TraceLog log;
  constexpr uint32_t kMany = TraceLog::kMostSpans / 2 + 1;
  for (uint64_t step = 1; step <= 4; ++step) AddStep(log, step, kMany);
  ASSERT_EQ(log.Take(0).steps_size(), 1);
  EXPECT_EQ(log.Take(0).steps(0).spans_size(), static_cast<int>(kMany));
  AddStep(log, 5, 3 * TraceLog::kMostSpans);
  EXPECT_EQ(log.Take(0).steps(0).spans_size(), static_cast<int>(TraceLog::kMostSpans));
}

TEST(TraceLog, FitsIntoAMessageOfTheCoordinator) {
  TraceLog log;
  for (uint32_t i = 0; i < TraceLog::kMostSpans; ++i) {
    log.Add({.kind = v1::Span::RECEIVE,
             .slice = Microbatch(65535),
             .up = true,
             .begin = kBegin + absl::Hours(1),
             .end = kBegin + absl::Hours(2),
             .bytes = uint64_t{1} << 40});
  }
  log.EndStep(Step(uint64_t{1} << 62), kBegin, kBegin + absl::Hours(2));
  EXPECT_LT(log.Take(0).ByteSizeLong() + 1000, kMaxTraceBytes);
}

}  // namespace
}  // namespace longhaul::worker
