#include "deploy/cluster/relay/delay_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace longhaul::relay {
namespace {

using ::testing::ElementsAre;

constexpr size_t kRoomy = size_t{1} << 30;
const MonoTime kStart = MonoTime() + absl::Hours(1000);

Frame MakeFrame(uint32_t id, uint32_t capacity = 64) {
  Frame frame{std::make_unique<std::byte[]>(capacity), capacity, capacity};
  std::memcpy(frame.bytes.get(), &id, sizeof id);
  return frame;
}

uint32_t IdOf(const Frame& frame) {
  uint32_t id = 0;
  std::memcpy(&id, frame.bytes.get(), sizeof id);
  return id;
}

struct Seen {
  uint32_t id;
  MonoTime time;
};

// Lets the clock go from release to release till nothing is under way.
std::vector<Seen> Drain(DelayQueue* queue) {
  std::vector<Seen> seen;
  while (const auto next = queue->NextRelease()) {
    while (auto due = queue->Release(*next)) seen.push_back({IdOf(due->frame), *next});
  }
  return seen;
}

std::vector<uint32_t> Ids(const std::vector<Seen>& all) {
  std::vector<uint32_t> ids;
  for (const Seen& seen : all) ids.push_back(seen.id);
  return ids;
}

// Two workers, the same quality each way.
void Configure(DelayQueue* queue, const LinkQuality& quality) {
  queue->Configure(2, {{}, quality, quality, {}}, {true, true});
}

TEST(DelayQueue, HoldsFramesForTheDelayOfTheirPath) {
  HeldBytes held(kRoomy);
  DelayQueue queue(1, &held);
  queue.Configure(2, {{}, {absl::Milliseconds(25), {}, 0}, {absl::Milliseconds(40), {}, 0}, {}},
                  {true, true});
  queue.Admit(1, 0, MakeFrame(1), kStart);
  queue.Admit(0, 1, MakeFrame(2), kStart + absl::Milliseconds(5));
  EXPECT_EQ(queue.NextRelease(), kStart + absl::Milliseconds(30));
  EXPECT_FALSE(queue.Release(kStart + absl::Milliseconds(29)).has_value());
  const auto due = queue.Release(kStart + absl::Milliseconds(30));
  ASSERT_TRUE(due.has_value());
  EXPECT_EQ(due->to, 1u);
  EXPECT_EQ(IdOf(due->frame), 2u);
  const auto rest = Drain(&queue);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].time, kStart + absl::Milliseconds(40));
  EXPECT_EQ(held.now(), 0u);
  EXPECT_EQ(queue.counts().released, 2u);
}

TEST(DelayQueue, AShorterDelayOvertakesNobody) {
  HeldBytes held(kRoomy);
  DelayQueue queue(1, &held);
  Configure(&queue, {absl::Milliseconds(100), {}, 0});
  queue.Admit(0, 1, MakeFrame(1), kStart);
  Configure(&queue, {absl::Milliseconds(1), {}, 0});
  queue.Admit(0, 1, MakeFrame(2), kStart + absl::Milliseconds(10));
  queue.Admit(1, 0, MakeFrame(3), kStart + absl::Milliseconds(10));  // another path
  EXPECT_THAT(Ids(Drain(&queue)), ElementsAre(3, 1, 2));
}

TEST(DelayQueue, JitterStaysWithinItsBoundsAndKeepsTheOrder) {
  const LinkQuality quality{absl::Milliseconds(20), absl::Milliseconds(5), 0};
  HeldBytes held(kRoomy);
  DelayQueue queue(7, &held);
  Configure(&queue, quality);
  constexpr uint32_t kFrames = 20'000;
  const absl::Duration spacing = absl::Microseconds(200);
  for (uint32_t i = 0; i < kFrames; ++i) queue.Admit(0, 1, MakeFrame(i), kStart + i * spacing);
  const auto seen = Drain(&queue);
  ASSERT_EQ(seen.size(), kFrames);
  absl::Duration sum, least = absl::InfiniteDuration(), most;
  for (uint32_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(seen[i].id, i);
    const absl::Duration delay = seen[i].time - (kStart + i * spacing);
    sum += delay;
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, absl::Milliseconds(15));
  EXPECT_LE(most, absl::Milliseconds(25));
  // It wanders through most of that, around the delay, though the line is never idle.
  EXPECT_LT(least, absl::Milliseconds(16));
  EXPECT_GT(most, absl::Milliseconds(24));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(sum / kFrames), 20, 0.5);
}

TEST(DelayQueue, JitterOfOnePathIsNotThatOfAnother) {
  HeldBytes held(kRoomy);
  DelayQueue queue(7, &held);
  Configure(&queue, {absl::Milliseconds(20), absl::Milliseconds(5), 0});
  queue.Admit(0, 1, MakeFrame(1), kStart);
  queue.Admit(1, 0, MakeFrame(2), kStart);
  const auto seen = Drain(&queue);
  EXPECT_NE(seen[0].time, seen[1].time);
}

TEST(DelayQueue, LosesTheShareItIsToldTo) {
  constexpr uint32_t kFrames = 200'000;
  constexpr double kLoss = 0.02;
  HeldBytes held(kRoomy);
  DelayQueue queue(3, &held);
  Configure(&queue, {{}, {}, kLoss});
  uint32_t streaks = 0;
  uint64_t lost_before = 0;
  bool was_lost = false;
  for (uint32_t i = 0; i < kFrames; ++i) {
    queue.Admit(0, 1, MakeFrame(i), kStart);
    const bool lost = queue.counts().lost > lost_before;
    lost_before = queue.counts().lost;
    streaks += lost && was_lost;
    was_lost = lost;
    while (queue.Release(kStart)) {
    }
  }
  // Within five standard deviations, and one loss does not bring the next.
  const double deviation = std::sqrt(kFrames * kLoss * (1 - kLoss));
  EXPECT_NEAR(static_cast<double>(lost_before), kFrames * kLoss, 5 * deviation);
  EXPECT_NEAR(streaks, kFrames * kLoss * kLoss, 5 * std::sqrt(kFrames * kLoss * kLoss));
  EXPECT_EQ(queue.counts().released + queue.counts().lost, kFrames);
}

TEST(DelayQueue, NothingPassesACut) {
  HeldBytes held(kRoomy);
  DelayQueue queue(1, &held);
  const LinkQuality quality{absl::Milliseconds(20), {}, 0};
  Configure(&queue, quality);
  queue.Admit(0, 1, MakeFrame(1), kStart);  // under way when the line is cut
  queue.Configure(2, {{}, quality, quality, {}}, {true, false});
  queue.Admit(0, 1, MakeFrame(2), kStart + absl::Milliseconds(1));
  queue.Admit(1, 0, MakeFrame(3), kStart + absl::Milliseconds(1));
  EXPECT_TRUE(Drain(&queue).empty());
  EXPECT_EQ(queue.counts().lost, 3u);
  EXPECT_EQ(held.now(), 0u);
  Configure(&queue, quality);
  queue.Admit(0, 1, MakeFrame(4), kStart + absl::Milliseconds(2));
  EXPECT_THAT(Ids(Drain(&queue)), ElementsAre(4));
}

TEST(DelayQueue, HoldsNoMoreThanItMay) {
  HeldBytes held(200);
  DelayQueue queue(1, &held);
  Configure(&queue, {absl::Seconds(1), {}, 0});
  for (uint32_t i = 0; i < 4; ++i) queue.Admit(0, 1, MakeFrame(i, 64), kStart);
  EXPECT_EQ(held.now(), 192u);
  EXPECT_EQ(queue.counts().overflowed, 1u);
  EXPECT_THAT(Ids(Drain(&queue)), ElementsAre(0, 1, 2));
  queue.Admit(0, 1, MakeFrame(4, 64), kStart);
  EXPECT_EQ(held.now(), 64u);
}

TEST(DelayQueue, SeveralShareTheRoom) {
  HeldBytes held(200);
  DelayQueue queue(1, &held);
  Configure(&queue, {absl::Seconds(1), {}, 0});
  {
    DelayQueue other(2, &held);
    Configure(&other, {absl::Seconds(1), {}, 0});
    other.Admit(0, 1, MakeFrame(1, 192), kStart);
    queue.Admit(0, 1, MakeFrame(2, 64), kStart);
    EXPECT_EQ(queue.counts().overflowed, 1u);
  }
  EXPECT_EQ(held.now(), 0u);
  queue.Admit(0, 1, MakeFrame(3, 64), kStart);
  EXPECT_THAT(Ids(Drain(&queue)), ElementsAre(3));
}

TEST(DelayQueue, AnotherNumberOfWorkersBeginsAnew) {
  HeldBytes held(kRoomy);
  DelayQueue queue(1, &held);
  Configure(&queue, {absl::Seconds(1), {}, 0});
  queue.Admit(0, 1, MakeFrame(1), kStart);
  queue.Configure(3, std::vector<LinkQuality>(9), {true, true, true});
  EXPECT_FALSE(queue.NextRelease().has_value());
  EXPECT_EQ(held.now(), 0u);
  EXPECT_EQ(queue.counts().lost, 1u);
  queue.Admit(0, 2, MakeFrame(2), kStart);
  EXPECT_EQ(queue.NextRelease(), kStart);
}

}  // namespace
}  // namespace longhaul::relay
