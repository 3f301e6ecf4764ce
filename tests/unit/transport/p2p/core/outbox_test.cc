#include "transport/p2p/core/outbox.h"

#include <gtest/gtest.h>

#include <array>
#include <span>

namespace longhaul::transport::internal {
namespace {

using Frames = std::vector<Outbox::FramePtr>;

Outbox WithSent(size_t frames) {
  Outbox out(8);
  for (size_t i = 0; i < frames; ++i) out.Push({}, [](const Status&) {});
  for (size_t i = 0; i < frames; ++i) EXPECT_NE(out.Take(), nullptr);
  return out;
}

TEST(OutboxTest, HoldsFramesUntilTheyAreAcknowledged) {
  Outbox out = WithSent(3);
  EXPECT_EQ(out.Take(), nullptr);
  EXPECT_FALSE(out.empty());
  Frames finished;
  ASSERT_TRUE(out.OnAcknowledgement(2, 8, &finished).ok());
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[1]->sequence, 2u);
  ASSERT_TRUE(out.OnAcknowledgement(3, 8, &finished).ok());
  EXPECT_TRUE(out.empty());
}

TEST(OutboxTest, AFrameThatAChannelStillReadsIsTheChannelsToFinish) {
  Outbox out(8);
  out.Push({}, [](const Status&) {});
  const Outbox::FramePtr frame = out.Take();
  frame->under_way = 1;
  Frames finished;
  ASSERT_TRUE(out.OnAcknowledgement(1, 8, &finished).ok());
  EXPECT_TRUE(finished.empty());
  EXPECT_TRUE(frame->taken);
}

TEST(OutboxTest, SendsAgainWhatThePeerLacksThenGoesOn) {
  Outbox out = WithSent(4);
  out.Push({}, [](const Status&) {});
  Frames finished;
  ASSERT_TRUE(out.Resume(2, 8, &finished).ok());
  EXPECT_EQ(finished.size(), 2u);
  EXPECT_EQ(out.to_send_again(), 2u);
  for (uint64_t sequence = 3; sequence <= 5; ++sequence) {
    EXPECT_EQ(out.Take()->sequence, sequence);
  }
  EXPECT_EQ(out.Take(), nullptr);
  EXPECT_EQ(out.to_send_again(), 0u);
}

// Acknowledged on the old connection while the new one was being made.
TEST(OutboxTest, WhatIsAcknowledgedIsNotSentAgain) {
  Outbox out = WithSent(4);
  Frames finished;
  ASSERT_TRUE(out.OnAcknowledgement(3, 8, &finished).ok());
  ASSERT_TRUE(out.Resume(1, 8, &finished).ok());
  EXPECT_EQ(out.to_send_again(), 1u);
  EXPECT_EQ(out.Take()->sequence, 4u);
}

TEST(OutboxTest, KnowsWhetherAFrameWaitsForACreditOrForTheConnection) {
  Outbox out(1);
  out.Push({}, [](const Status&) {});
  out.Push({}, [](const Status&) {});
  EXPECT_FALSE(out.waits_for_credit());
  EXPECT_NE(out.Take(), nullptr);
  EXPECT_TRUE(out.waits_for_credit());
  Frames finished;
  ASSERT_TRUE(out.Resume(0, 1, &finished).ok());
  EXPECT_FALSE(out.waits_for_credit()) << "the first frame is sent again before";
  EXPECT_NE(out.Take(), nullptr);
  EXPECT_TRUE(out.waits_for_credit());
  ASSERT_TRUE(out.OnAcknowledgement(1, 1, &finished).ok());
  EXPECT_FALSE(out.waits_for_credit());
}

// A frame of `bytes` that the next one continues, or not.
void PushPart(Outbox& out, bool continues, size_t bytes = 100) {
  static constexpr std::array<std::byte, 200> kBytes{};
  out.Push({.header = {}, .body = std::span(kBytes).first(bytes), .continues = continues},
           [](const Status&) {});
}

TEST(OutboxTest, KnowsWhatFollowsOfTheMessage) {
  Outbox out(8);
  EXPECT_EQ(out.Following(4), 0u);
  for (int i = 0; i < 5; ++i) PushPart(out, /*continues=*/i != 3);
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 3u);
  EXPECT_EQ(out.Following(2), 2u);
  for (int i = 0; i < 2; ++i) ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 1u);
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 0u) << "the message's last frame";
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 0u) << "the rest is not here yet";
  PushPart(out, false);
  EXPECT_EQ(out.Following(4), 1u);
}

TEST(OutboxTest, WhatFollowsIsAsLong) {
  Outbox out(8);
  PushPart(out, true);
  PushPart(out, true);
  PushPart(out, false, /*bytes=*/99);
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 1u);
}

// A receiver that waited for the fourth frame would never grant its credit.
TEST(OutboxTest, WhatFollowsNeedsNoFurtherCredit) {
  Outbox out(3);
  for (int i = 0; i < 6; ++i) PushPart(out, true);
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 2u);
  Frames finished;
  ASSERT_TRUE(out.OnAcknowledgement(1, 3, &finished).ok());
  EXPECT_EQ(out.Following(4), 0u) << "nothing of what was sent is here any more";
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 2u);
  // On a new connection, frames that were sent need none.
  ASSERT_TRUE(out.Resume(1, 1, &finished).ok());
  ASSERT_NE(out.Take(), nullptr);
  EXPECT_EQ(out.Following(4), 2u);
}

TEST(OutboxTest, RefusesWhatWasNeverSent) {
  Outbox out = WithSent(1);
  Frames finished;
  EXPECT_EQ(out.Resume(2, 8, &finished).code(), absl::StatusCode::kInvalidArgument);
}

TEST(OutboxTest, TheGoodbyeIsLastAndNeedsNoCredit) {
  Outbox out(1);
  out.Push({}, [](const Status&) {});
  out.Push({}, [](const Status&) {});
  out.PushGoodbye();
  EXPECT_EQ(out.Take()->sequence, 1u);
  EXPECT_EQ(out.Take(), nullptr) << "no credit for the second";
  EXPECT_EQ(out.DropWaiting().size(), 1u);
  const Outbox::FramePtr goodbye = out.Take();
  ASSERT_NE(goodbye, nullptr);
  EXPECT_EQ(goodbye->kind, wire::LinkKind::kGoodbye);
  EXPECT_EQ(goodbye->sequence, 2u);
  Frames finished;
  ASSERT_TRUE(out.Resume(0, 1, &finished).ok());
  EXPECT_EQ(out.to_send_again(), 2u);
  EXPECT_EQ(out.DropAll().size(), 2u);
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace longhaul::transport::internal
