// A call that is made again with its id does nothing twice, also after a restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "coordinator/state/once.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kId[] = "0123456789abcdef";
constexpr char kOtherId[] = "fedcba9876543210";

event::Submitted SubmitWithId(const std::string& run, const std::string& id, uint64_t request,
                              const std::string& owner = "ann") {
  event::Submitted submitted = SubmitOf(SmallSpec("tiny", 2), run, request);
  submitted.submit.set_request_id(id);
  submitted.by = {.name = owner, .may_all = false};
  return submitted;
}

event::StopAsked StopWithId(const std::string& run, const std::string& id, uint64_t request,
                            bool now = true) {
  return {.request = RequestId(request),
          .run = run,
          .now = now,
          .once = {.owner = "ann", .id = id, .asked_sha256 = run + (now ? " now" : "")}};
}

template <class Reply>
const command::Reply<Reply>* AnswerTo(const Coordinator& coordinator, uint64_t request) {
  const command::Reply<Reply>* found = nullptr;
  for (const Command& command : coordinator.commands) {
    const auto* reply = std::get_if<command::Reply<Reply>>(&command);
    if (reply != nullptr && reply->request == RequestId(request)) found = reply;
  }
  return found;
}

size_t CountAnswered(const TickResult& result) {
  return static_cast<size_t>(std::ranges::count_if(result.writes, [](const Write& write) {
    return std::holds_alternative<write::Answered>(write);
  }));
}

TEST(RequestsTest, TheSameSubmissionMakesOneRun) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kId, 1));
  // The answer is stored together with the run.
  EXPECT_EQ(CountAnswered(coordinator.last), 1u);
  EXPECT_TRUE(coordinator.records.contains("tiny-1"));
  coordinator.Tick(SubmitWithId("tiny-2", kId, 2));
  EXPECT_EQ(CountAnswered(coordinator.last), 0u);
  const auto* again = AnswerTo<v1::SubmitReply>(coordinator, 2);
  ASSERT_NE(again, nullptr);
  ASSERT_TRUE(again->reply.ok()) << again->reply.status();
  EXPECT_EQ(again->reply->run_id(), "tiny-1");
  EXPECT_TRUE(again->reply->stored().repeated());
  EXPECT_FALSE(AnswerTo<v1::SubmitReply>(coordinator, 1)->reply->stored().repeated());
  EXPECT_THAT(coordinator.views().Runs(), SizeIs(1));
}

TEST(RequestsTest, BothInOneTickMakeOneRun) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kId, 1), SubmitWithId("tiny-2", kId, 2));
  EXPECT_THAT(coordinator.views().Runs(), SizeIs(1));
  ASSERT_NE(AnswerTo<v1::SubmitReply>(coordinator, 2), nullptr);
  EXPECT_EQ(AnswerTo<v1::SubmitReply>(coordinator, 2)->reply->run_id(), "tiny-1");
  EXPECT_TRUE(AnswerTo<v1::SubmitReply>(coordinator, 2)->reply->stored().repeated());
}

TEST(RequestsTest, WithoutAnIdEveryCallCounts) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", "", 1));
  coordinator.Tick(SubmitWithId("tiny-2", "", 2));
  EXPECT_THAT(coordinator.views().Runs(), SizeIs(2));
}

TEST(RequestsTest, AnIdBelongsToItsOwner) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kId, 1, "ann"));
  coordinator.Tick(SubmitWithId("tiny-2", kId, 2, "bob"));
  ASSERT_TRUE(AnswerTo<v1::SubmitReply>(coordinator, 2)->reply.ok());
  EXPECT_EQ(AnswerTo<v1::SubmitReply>(coordinator, 2)->reply->run_id(), "tiny-2");
}

TEST(RequestsTest, AnotherRequestWithTheIdIsRefused) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kId, 1));
  event::Submitted other = SubmitWithId("tiny-2", kId, 2);
  other.submit.set_run_yaml("another");
  coordinator.Tick(other);
  const auto* refused = AnswerTo<v1::SubmitReply>(coordinator, 2);
  ASSERT_NE(refused, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(refused->reply.status()));
  EXPECT_THAT(std::string(Message(refused->reply.status())), HasSubstr("another call"));
  // Nor is it an answer of another kind.
  coordinator.Tick(StopWithId("tiny-1", kId, 3));
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerTo<v1::StopReply>(coordinator, 3)->reply.status()));
  EXPECT_EQ(coordinator.StateOf("tiny-1"), "queued");
}

// A late second stop must not stop the run that somebody resumed meanwhile.
TEST(RequestsTest, AStopThatIsRepeatedTouchesNothing) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kOtherId, 1));
  coordinator.Tick(StopWithId("tiny-1", kId, 2));
  EXPECT_EQ(coordinator.StateOf("tiny-1"), "stopped");
  event::Submitted resumed = SubmitWithId("x", "", 3);
  resumed.submit.set_resume(true);
  coordinator.Tick(resumed);
  EXPECT_EQ(coordinator.StateOf("tiny-1"), "queued");
  coordinator.Tick(StopWithId("tiny-1", kId, 4));
  EXPECT_EQ(coordinator.StateOf("tiny-1"), "queued");
  EXPECT_EQ(AnswerTo<v1::StopReply>(coordinator, 4)->reply->message(), "tiny-1 is stopped");
  EXPECT_TRUE(AnswerTo<v1::StopReply>(coordinator, 4)->reply->stored().repeated());
}

TEST(RequestsTest, ARemovalThatIsRepeatedIsAnsweredAfterTheRunIsGone) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", "", 1));
  coordinator.Tick(StopWithId("tiny-1", "", 2));
  event::RemoveAsked asked{.request = RequestId(3),
                           .run = "tiny-1",
                           .once = {.owner = "ann", .id = kId, .asked_sha256 = "tiny-1"}};
  coordinator.Tick(asked);
  EXPECT_THAT(coordinator.views().Runs(), SizeIs(0));
  asked.request = RequestId(4);
  asked.once.only_again = true;
  coordinator.Tick(asked);
  ASSERT_TRUE(AnswerTo<v1::RemoveRunReply>(coordinator, 4)->reply.ok());
  EXPECT_EQ(AnswerTo<v1::RemoveRunReply>(coordinator, 4)->reply->run_id(), "tiny-1");
}

TEST(RequestsTest, ARefusalIsNotKept) {
  Coordinator coordinator;
  coordinator.Tick(StopWithId("tiny-1", kId, 1));
  EXPECT_TRUE(absl::IsNotFound(AnswerTo<v1::StopReply>(coordinator, 1)->reply.status()));
  EXPECT_EQ(CountAnswered(coordinator.last), 0u);
  coordinator.Tick(SubmitWithId("tiny-1", kOtherId, 2));
  coordinator.Tick(StopWithId("tiny-1", kId, 3));
  EXPECT_TRUE(AnswerTo<v1::StopReply>(coordinator, 3)->reply.ok());
}

TEST(RequestsTest, WhoseAnswerIsForgottenMayDoNothing) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kOtherId, 1));
  event::StopAsked stop = StopWithId("tiny-1", kId, 2);
  stop.once.only_again = true;  // so nobody looked whether it is the caller's run
  coordinator.Tick(stop);
  EXPECT_TRUE(absl::IsNotFound(AnswerTo<v1::StopReply>(coordinator, 2)->reply.status()));
  EXPECT_EQ(coordinator.StateOf("tiny-1"), "queued");
}

TEST(RequestsTest, AnswersOutliveARestart) {
  Coordinator coordinator;
  coordinator.Tick(SubmitWithId("tiny-1", kId, 1));
  coordinator.Restart();
  EXPECT_TRUE(coordinator.views().KnowsCall("ann", kId));
  EXPECT_FALSE(coordinator.views().KnowsCall("bob", kId));
  coordinator.Tick(SubmitWithId("tiny-2", kId, 2));
  EXPECT_EQ(AnswerTo<v1::SubmitReply>(coordinator, 2)->reply->run_id(), "tiny-1");
  EXPECT_THAT(coordinator.views().Runs(), SizeIs(1));
}

// What is deleted cannot come back, so a coordinator that leads no more must not delete: its store
// refuses the change, and the commands do not go out.
TEST(RequestsTest, WhatDeletesIsBehindAWrite) {
  Coordinator coordinator;
  coordinator.Tick(event::GarbageAsked{.request = RequestId(1), .ask = {}});
  ASSERT_THAT(coordinator.last.writes, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<write::Barrier>(coordinator.last.writes.front()));
  coordinator.Tick();
  EXPECT_THAT(coordinator.last.writes, SizeIs(0));
}

TEST(OnceTest, TheHashIsOfAllButTheId) {
  v1::StopRequest request;
  request.set_run("a");
  const std::string hash = Sha256WithoutId(request);
  request.set_request_id(kId);
  EXPECT_EQ(Sha256WithoutId(request), hash);
  request.set_now(true);
  EXPECT_NE(Sha256WithoutId(request), hash);
}

}  // namespace
}  // namespace longhaul::coordinator
