#include "run/data/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace longhaul::data {
namespace {

constexpr uint32_t kContext = 16;

Source SourceOf(const std::string& folder, double weight, uint64_t tokens, uint64_t held_out = 0) {
  Source source{.folder = folder, .weight = weight, .set = {}};
  source.set.vocabulary = 100;
  source.set.chunk_bytes = 4096;
  const auto list = [](uint64_t count) {
    TokenList shards;
    for (uint64_t at = 0; at < count; at += 3000) {
      shards.shards.push_back(
          {.tokens = std::min<uint64_t>(3000, count - at), .ids = {}, .mask = {}});
    }
    return shards;
  };
  source.set.training = list(tokens);
  source.set.validation = list(held_out);
  return source;
}

TEST(WindowsOfSources, ValidationIsTheListOrCutOffTheEnd) {
  const Mixture mixture{{SourceOf("a", 1, 1601), SourceOf("b", 1, 1601, 65)}};
  const auto none = WindowsOfSources(mixture, kContext, 0);
  EXPECT_EQ(none[0].training, 100);
  EXPECT_EQ(none[0].validation, 0);
  EXPECT_EQ(none[1].first, 100);
  EXPECT_EQ(none[1].validation, 4);
  const auto cut = WindowsOfSources(mixture, kContext, 0.1);
  EXPECT_EQ(cut[0].training, 90);
  EXPECT_EQ(cut[0].training_tokens, 1440);
  EXPECT_EQ(cut[0].validation, 10);
  EXPECT_EQ(cut[1].first, 90);
  EXPECT_EQ(cut[1].training, 100);  // its own list is enough
  EXPECT_EQ(cut[1].validation, 4);
}

TEST(WindowsOfSources, NoTokenIsBothTrainedOnAndHeldOut) {
  std::mt19937_64 random(20261124);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t tokens = kContext + 1 + random() % 5000;
    const double share = static_cast<double>(random() % 100) / 101;
    const auto one = WindowsOfSources({{SourceOf("a", 1, tokens)}}, kContext, share)[0];
    // Inputs and targets, but for the last target, which only ends a window.
    EXPECT_LE(one.training * kContext, one.training_tokens);
    EXPECT_LE(one.training_tokens + one.validation * kContext + (one.validation > 0 ? 1 : 0),
              tokens);
    if (one.training_tokens == tokens) continue;
    EXPECT_EQ(one.training_tokens % kContext, 0);
  }
}

TEST(ShuffledOrder, HasEachWindowOnceInAPass) {
  const auto order = ShuffledOrder(3, 37);
  EXPECT_EQ(order->windows(), 37);
  for (uint64_t pass = 0; pass < 3; ++pass) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 37; ++i) seen.insert(order->WindowOf(pass * 37 + i));
    EXPECT_EQ(seen.size(), 37);
    EXPECT_EQ(*seen.rbegin(), 36);
  }
}

TEST(MixedOrder, TakesFromSourcesByTheirWeightsExactlyInEachCycle) {
  const Mixture mixture{
      {SourceOf("a", 3, 9000), SourceOf("b", 1, 50000), SourceOf("c", 1e-9, 2000)}};
  const auto order = MixedOrder(mixture, kContext, 0, 5, 1 << 20);
  const auto sources = WindowsOfSources(mixture, kContext, 0);
  for (uint64_t cycle = 0; cycle < 4; ++cycle) {
    std::vector<int> taken(3, 0);
    for (uint64_t i = 0; i < 1024; ++i) {
      const uint64_t window = order->WindowOf(cycle * 1024 + i);
      ASSERT_LT(window, order->windows());
      ++taken[window >= sources[2].first ? 2 : window >= sources[1].first ? 1 : 0];
    }
    // The least weight has a slot all the same.
    EXPECT_THAT(taken, ::testing::ElementsAre(767, 256, 1));
  }
}

TEST(MixedOrder, ReadsEachWindowOfASourceOnceBeforeAnyTwice) {
  for (const uint64_t memory : {uint64_t{1}, uint64_t{64} << 10, uint64_t{64} << 20}) {
    const Mixture mixture{{SourceOf("a", 1, 30000), SourceOf("b", 2, 7001)}};
    const auto order = MixedOrder(mixture, kContext, 0, 9, memory);
    const auto sources = WindowsOfSources(mixture, kContext, 0);
    std::map<uint64_t, int> times;
    for (uint64_t i = 0; i < 20'000; ++i) {
      const uint64_t window = order->WindowOf(i);
      const bool second = window >= sources[1].first;
      ++times[window];
      // Nobody is more than a pass ahead of another of its source.
      if (i % 997 != 0) continue;
      const auto& one = sources[second ? 1 : 0];
      int least = 1 << 30, most = 0;
      for (uint64_t w = one.first; w < one.first + one.training; ++w) {
        least = std::min(least, times[w]);
        most = std::max(most, times[w]);
      }
      EXPECT_LE(most - least, 1) << i;
    }
  }
}

TEST(MixedOrder, IsAPureFunctionOfTheSequence) {
  const Mixture mixture{{SourceOf("a", 1, 30000), SourceOf("b", 1.5, 7001)}};
  const auto straight = MixedOrder(mixture, kContext, 0.05, 1, 1 << 20);
  const auto jumping = MixedOrder(mixture, kContext, 0.05, 1, 1 << 20);
  std::vector<uint64_t> sequences(6000);
  std::iota(sequences.begin(), sequences.end(), 0);
  std::vector<uint64_t> windows;
  for (const uint64_t k : sequences) windows.push_back(straight->WindowOf(k));
  std::shuffle(sequences.begin(), sequences.end(), std::mt19937_64(2));
  for (const uint64_t k : sequences) ASSERT_EQ(jumping->WindowOf(k), windows[k]);
  const auto other = MixedOrder(mixture, kContext, 0.05, 2, 1 << 20);
  int same = 0;
  for (uint64_t k = 0; k < 1000; ++k) same += other->WindowOf(k) == windows[k] ? 1 : 0;
  EXPECT_LT(same, 50);
}

// What bounds the memory of whoever reads: within a group of blocks all windows come before the
// next group begins.
TEST(MixedOrder, ChunksAreReadInGroupsThatTheMemoryHolds) {
  const Mixture mixture{{SourceOf("a", 1, 2'000'000)}};
  constexpr uint64_t kMemory = 256 << 10;  // 64 chunks
  const auto order = MixedOrder(mixture, kContext, 0, 1, kMemory);
  constexpr uint64_t kWindowsOfAChunk = 4096 / 2 / kContext;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> span;  // chunk: first and last sequence
  for (uint64_t k = 0; k < order->windows(); ++k) {
    const uint64_t chunk = order->WindowOf(k) / kWindowsOfAChunk;
    auto [it, is_new] = span.try_emplace(chunk, k, k);
    it->second.second = k;
  }
  // How many chunks are between their first and their last use, at a time.
  std::map<uint64_t, int> change;
  for (const auto& [chunk, use] : span) {
    ++change[use.first];
    --change[use.second + 1];
  }
  int held = 0, most = 0;
  for (const auto& [at, difference] : change) most = std::max(most, held += difference);
  // A block may lie in two chunks, and the last window of a group may be the first of another's
  // chunk.
  EXPECT_LE(most * uint64_t{4096}, kMemory);
  EXPECT_GT(most, 8);  // and the windows of many are mixed
}

}  // namespace
}  // namespace longhaul::data
