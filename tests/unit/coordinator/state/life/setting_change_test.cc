// Every phase of a change is safe beside the one before, whichever cells are how far.
#include "coordinator/state/life/setting_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "run/plan/chain.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;

using AskedSettings = std::vector<AskedSetting>;

Assignment Chain(uint32_t stages) {
  Assignment assignment;
  for (uint32_t s = 0; s < stages; ++s) assignment.cells.emplace_back().id = {0, s};
  assignment.edges = chain::MakeEdges(1, stages);
  return assignment;
}

AskedSettings AllAsked(const SettingChange& change, size_t cells) {
  AskedSettings asked;
  for (size_t i = 0; i < cells; ++i) asked.push_back(*change.AskedOf(i));
  return asked;
}

// All cells say that they have what they are asked for.
void SayAll(SettingChange* change, size_t cells, uint64_t step) {
  for (size_t i = 0; i < cells; ++i) {
    EXPECT_EQ(change->Said(i, change->id(), step), i + 1 == cells);
  }
}

TEST(SettingChange, DepthsGrowThenLeadsThenDepthsShrink) {
  SettingChange change(AskedSettings{{4, 0}, {6, 2}});
  EXPECT_FALSE(change.IsUnderWay());
  change.Begin({{8, 0}, {5, 4}}, {8, 8});
  ASSERT_TRUE(change.Advance(1));
  EXPECT_THAT(AllAsked(change, 2), ElementsAre(AskedSetting{8, 0}, AskedSetting{6, 2}));
  SayAll(&change, 2, 10);
  ASSERT_TRUE(change.Advance(2));
  EXPECT_THAT(AllAsked(change, 2), ElementsAre(AskedSetting{8, 0}, AskedSetting{6, 4}));
  SayAll(&change, 2, 11);
  ASSERT_TRUE(change.Advance(3));
  EXPECT_THAT(AllAsked(change, 2), ElementsAre(AskedSetting{8, 0}, AskedSetting{5, 4}));
  SayAll(&change, 2, 13);
  EXPECT_FALSE(change.Advance(4));
  EXPECT_FALSE(change.IsUnderWay());
  EXPECT_EQ(change.since(), 13u);
  EXPECT_EQ(change.AskedOf(0), nullptr);
}

TEST(SettingChange, WhatIsHeldAlreadyIsNotAskedFor) {
  SettingChange change(AskedSettings{{4, 0}, {3, 2}});
  change.Begin({{4, 0}, {3, 2}}, {8, 8});
  EXPECT_FALSE(change.Advance(1));
  EXPECT_FALSE(change.IsUnderWay());
}

TEST(SettingChange, WhatIsNotKnownGoesByTheMostDepths) {
  SettingChange change;
  change.Begin({{4, 0}, {3, 2}}, {8, 7});
  ASSERT_TRUE(change.Advance(1));
  EXPECT_THAT(AllAsked(change, 2),
              ElementsAre(AskedSetting{8, std::nullopt}, AskedSetting{7, std::nullopt}));
}

TEST(SettingChange, OnlyAnswersToTheNewestPhaseCount) {
  SettingChange change(AskedSettings{{4, 0}});
  EXPECT_FALSE(change.Said(0, 0, 5)) << "nothing is under way";
  change.Begin({{8, 0}}, {8});
  ASSERT_TRUE(change.Advance(7));
  EXPECT_FALSE(change.Said(0, 6, 5));
  ASSERT_NE(change.AskedOf(0), nullptr);
  EXPECT_TRUE(change.Said(0, 7, 5));
  EXPECT_EQ(change.AskedOf(0), nullptr) << "it has said so";
}

// Were leads to grow at once with the depths that they need, a cell might have its lead before one
// above it has its depth.
TEST(SettingChange, FindsWhoMightWaitForEver) {
  const Assignment assignment = Chain(3);
  EXPECT_EQ(SettingChange().FirstUnsafe(assignment), nullptr);
  EXPECT_EQ(SettingChange(AskedSettings{{4, 0}, {3, 4}, {2, 3}}).FirstUnsafe(assignment), nullptr);
  const SettingChange unsafe(AskedSettings{{4, 0}, {3, 4}, {2, 4}});
  EXPECT_EQ(unsafe.FirstUnsafe(assignment), &assignment.cells[2]);
}

TEST(SettingChange, IsSafeAtAnyMoment) {
  constexpr uint32_t kCells = 5, kMost = 9;
  const Assignment assignment = Chain(kCells);
  std::mt19937 random(3);
  const auto safe_settings = [&] {
    AskedSettings settings;
    uint32_t least = kMost;
    for (uint32_t i = 0; i < kCells; ++i) {
      const uint32_t depth = 1 + random() % kMost;
      settings.push_back({depth, i == 0 ? 0 : random() % (least + 1)});
      least = std::min(least, depth);
    }
    return settings;
  };
  SettingChange change(safe_settings());
  uint64_t id = 0;
  for (int round = 0; round < 500; ++round) {
    const AskedSettings target = safe_settings();
    change.Begin(target, std::vector<uint32_t>(kCells, kMost));
    while (change.Advance(++id)) {
      EXPECT_EQ(change.FirstUnsafe(assignment), nullptr);
      for (size_t cell = 0; cell < kCells; ++cell) change.Said(cell, id, 1);
    }
    EXPECT_EQ(change.FirstUnsafe(assignment), nullptr);
  }
}

}  // namespace
}  // namespace longhaul::coordinator
