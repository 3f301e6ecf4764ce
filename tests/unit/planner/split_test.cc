#include "planner/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace longhaul::coordinator {
namespace {

// All ways to cut `layers` into `stages` parts of at least one.
void ForEachSplit(uint32_t stages, uint32_t layers, std::vector<uint32_t>* prefix,
                  const std::function<void(const std::vector<uint32_t>&)>& visit) {
  if (stages == 1) {
    prefix->push_back(layers);
    visit(*prefix);
    prefix->pop_back();
    return;
  }
  for (uint32_t share = 1; share + stages - 1 <= layers; ++share) {
    prefix->push_back(share);
    ForEachSplit(stages - 1, layers - share, prefix, visit);
    prefix->pop_back();
  }
}

struct Value {
  double slowest, squares;
};
std::optional<Value> Evaluate(const std::vector<uint32_t>& split, const StageTime& time) {
  Value value{0, 0};
  for (uint32_t s = 0; s < split.size(); ++s) {
    const std::optional<double> one = time(s, split[s]);
    if (!one) return std::nullopt;
    value.slowest = std::max(value.slowest, *one);
    value.squares += *one * *one;
  }
  return value;
}

TEST(BalanceLayers, AgreesWithBruteForce) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(0.1, 2.0);
  int impossible = 0;
  for (int round = 0; round < 400; ++round) {
    const uint32_t stages = 1 + static_cast<uint32_t>(random() % 5);
    const uint32_t layers = stages + static_cast<uint32_t>(random() % 7);
    std::vector<double> block(stages), extra(stages, 0.0);
    std::vector<uint32_t> capacity(stages);
    for (uint32_t s = 0; s < stages; ++s) {
      block[s] = uniform(random);
      capacity[s] = 1 + static_cast<uint32_t>(random() % layers);
    }
    extra.front() += uniform(random);
    extra.back() += uniform(random);
    const StageTime time = [&](uint32_t s, uint32_t n) -> std::optional<double> {
      if (n > capacity[s]) return std::nullopt;
      return n * block[s] + extra[s];
    };
    std::optional<Value> best;
    std::vector<uint32_t> prefix;
    ForEachSplit(stages, layers, &prefix, [&](const std::vector<uint32_t>& split) {
      const auto value = Evaluate(split, time);
      if (!value) return;
      if (!best || value->slowest < best->slowest ||
          (value->slowest == best->slowest && value->squares < best->squares)) {
        best = value;
      }
    });
    const auto split = BalanceLayers(stages, layers, time);
    ASSERT_EQ(split.has_value(), best.has_value()) << "round " << round;
    if (!best) {
      ++impossible;
      continue;
    }
    EXPECT_EQ(std::accumulate(split->begin(), split->end(), 0u), layers);
    EXPECT_DOUBLE_EQ(Evaluate(*split, time)->slowest, best->slowest);
    EXPECT_NEAR(Evaluate(*split, time)->squares, best->squares, 1e-9);
  }
  EXPECT_GT(impossible, 0);
  EXPECT_LT(impossible, 300);
}

TEST(BalanceLayers, EqualStagesGetEqualShares) {
  const StageTime time = [](uint32_t, uint32_t n) { return std::optional<double>(n); };
  EXPECT_EQ(*BalanceLayers(4, 8, time), (std::vector<uint32_t>{2, 2, 2, 2}));
  EXPECT_EQ(*BalanceLayers(1, 8, time), (std::vector<uint32_t>{8}));
}

TEST(BalanceLayers, RefusesMoreStagesThanLayers) {
  const StageTime time = [](uint32_t, uint32_t n) { return std::optional<double>(n); };
  EXPECT_FALSE(BalanceLayers(5, 4, time).has_value());
  EXPECT_FALSE(BalanceLayers(0, 4, time).has_value());
}

}  // namespace
}  // namespace longhaul::coordinator
