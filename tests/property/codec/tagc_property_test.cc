// What is kept, against sorting; what a sketch gives back, against what was put in.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "codec/tagc/select.h"
#include "codec/tagc/sketch.h"
#include "random_codecs.h"

namespace longhaul::codec::tagc {
namespace {

TEST(TagcSelect, KeepsWhatAStableSortKeeps) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> values(1 + Below(&random, 2000));
    for (float& value : values) {
      value = normal(random);
      if (round % 3 == 0) value = std::round(value * 4) / 4;  // many are equal
      if (round % 7 == 0) value *= 1e-42f;
    }
    const uint64_t keep = Below(&random, static_cast<uint32_t>(values.size() + 1));
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](size_t k) { return std::fabs(values[k]); });
    std::vector<bool> expected(values.size());
    for (size_t k = 0; k < keep; ++k) expected[order[k]] = true;
    std::vector<uint64_t> bitmap(BitmapWords(values.size()), ~uint64_t{0});
    Select(values, keep, bitmap);
    ASSERT_EQ(Count(bitmap), keep);
    for (size_t k = 0; k < values.size(); ++k) ASSERT_EQ(Has(bitmap, k), expected[k]) << round;
  }
}

enum class Pattern { kScattered, kColumns, kRows };

std::vector<uint64_t> Positions(Pattern pattern, uint64_t count, double share,
                                std::mt19937* random) {
  constexpr uint64_t kColumns = 768;
  std::vector<uint64_t> bitmap(BitmapWords(count));
  std::vector<bool> chosen(std::max(kColumns, count / kColumns + 1));
  std::bernoulli_distribution of_share(share), usual(share / 4), strong(0.9);
  for (size_t k = 0; k < chosen.size(); ++k) chosen[k] = of_share(*random);
  for (uint64_t k = 0; k < count; ++k) {
    bool set = of_share(*random);
    if (pattern != Pattern::kScattered) {
      const bool here = chosen[pattern == Pattern::kColumns ? k % kColumns : k / kColumns];
      set = here ? strong(*random) : usual(*random) && pattern == Pattern::kColumns;
    }
    bitmap[k / 64] |= uint64_t{set} << k % 64;
  }
  return bitmap;
}

// Sums of several sketches give back the sums of what was put in, exactly, and few positions are
// left out, whatever the matrix looks like.
TEST(TagcSketch, GivesBackSumsExactly) {
  std::mt19937 random(2);
  for (const Pattern pattern : {Pattern::kScattered, Pattern::kColumns, Pattern::kRows}) {
    for (const uint64_t count : {1ull, 64ull, 5000ull, 400'000ull}) {
      for (const double share : {0.0125, 0.05, 0.2}) {
        const auto bitmap = Positions(pattern, count, share, &random);
        const uint64_t in_union = Count(bitmap);
        const SketchPlan plan = PlanSketch(bitmap, random());
        ASSERT_LE(plan.left_out.size() * 1000, in_union) << static_cast<int>(pattern);
        std::vector<uint64_t> rest = bitmap;
        for (const uint32_t k : plan.left_out) rest[k / 64] &= ~(uint64_t{1} << k % 64);
        ASSERT_EQ(Count(rest) + plan.left_out.size(), in_union);
        std::vector<uint32_t> cells(plan.sketch.cells()), sums(Count(rest));
        for (int replica = 0; replica < 3; ++replica) {
          std::vector<uint32_t> numbers(sums.size());
          for (size_t k = 0; k < numbers.size(); ++k) sums[k] += numbers[k] = random();
          AddToSketch(plan.sketch, rest, numbers, cells);
        }
        std::vector<uint32_t> peeled(sums.size());
        ASSERT_TRUE(Peel(plan.sketch, rest, cells, peeled));
        ASSERT_TRUE(peeled == sums);
        if (in_union > 50'000) {
          EXPECT_GT(static_cast<double>(in_union) / static_cast<double>(plan.sketch.cells()),
                    pattern == Pattern::kRows ? 0.6 : 0.78)
              << static_cast<int>(pattern);
        }
      }
    }
  }
}

TEST(TagcSketch, RefusesCellsThatAreNoSumOfItsPositions) {
  std::mt19937 random(3);
  const auto bitmap = Positions(Pattern::kScattered, 10'000, 0.05, &random);
  const SketchPlan plan = PlanSketch(bitmap, 1);
  ASSERT_TRUE(plan.left_out.empty());
  std::vector<uint32_t> cells(plan.sketch.cells()), numbers(Count(bitmap));
  for (uint32_t& number : numbers) number = random();
  AddToSketch(plan.sketch, bitmap, numbers, cells);
  cells[random() % cells.size()] += 1;
  std::vector<uint32_t> peeled(numbers.size());
  EXPECT_FALSE(Peel(plan.sketch, bitmap, cells, peeled));
}

}  // namespace
}  // namespace longhaul::codec::tagc
