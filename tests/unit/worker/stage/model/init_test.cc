#include "worker/stage/model/init.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"

namespace longhaul::worker {
namespace {

std::vector<float> Normal(uint64_t seed, std::string_view name, size_t count,
                          double deviation = 1) {
  std::vector<float> values(count);
  FillNormal(seed, name, deviation, values);
  return values;
}

TEST(FillNormal, HasTheMomentsOfANormalDistribution) {
  constexpr size_t kCount = 400'000;
  double sum = 0, squares = 0, fourth = 0, within = 0;
  for (const float value : Normal(1, "wte", kCount, 0.02)) {
    const double x = value / 0.02;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    within += std::abs(x) < 1 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
  EXPECT_NEAR(fourth / kCount, 3, 0.08);
  EXPECT_NEAR(within / kCount, 0.6827, 0.005);
}

// The exact bits are those of the generator, computed here with libm in place of the series.
// So many numbers that several threads make them.
TEST(FillNormal, AgreesWithLibm) {
  const std::vector<float> values = Normal(5, "h.3.attn.qkv.weight", 1'500'002);
  const uint64_t stream =
      Checksum64(std::as_bytes(std::span(std::string_view("h.3.attn.qkv.weight"))));
  for (size_t i = 0; i < values.size(); i += 2) {
    const Philox::Counter random =
        Philox::Generate({static_cast<uint32_t>(i / 4), 0, static_cast<uint32_t>(stream),
                          static_cast<uint32_t>(stream >> 32)},
                         {5, 0});
    const double u = (random[i % 4] + 0.5) / 4294967296.0;
    const double v = (random[i % 4 + 1] + 0.5) / 4294967296.0;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::acos(-1.0) * v;
    // Within a rounding to float.
    EXPECT_NEAR(values[i], radius * std::cos(angle), 1e-7 * radius) << i;
    EXPECT_NEAR(values[i + 1], radius * std::sin(angle), 1e-7 * radius) << i;
  }
}

TEST(FillNormal, BitsAreFixedForever) {
  std::vector<uint32_t> bits;
  for (const float value : Normal(1, "wte", 5, 0.02))
    bits.push_back(std::bit_cast<uint32_t>(value));
  EXPECT_EQ(bits,
            (std::vector<uint32_t>{1008889671, 998402348, 3167071174, 1014599697, 1010038079}));
}

TEST(FillNormal, DependsOnSeedAndNameAndNotOnTheCount) {
  const std::vector<float> reference = Normal(1, "a", 101);
  EXPECT_EQ(Normal(1, "a", 101), reference);
  std::vector<float> longer = Normal(1, "a", 102);
  longer.pop_back();
  EXPECT_EQ(longer, reference);
  for (const auto& other :
       {Normal(2, "a", 101), Normal(uint64_t{1} << 32 | 1, "a", 101), Normal(1, "b", 101)}) {
    for (size_t i = 0; i < other.size(); ++i) EXPECT_NE(other[i], reference[i]);
  }
}

// Stretches that begin and end anywhere, one longer than what a thread has.
TEST(FillNormal, StretchesHaveTheNumbersOfTheWhole) {
  const std::vector<float> whole = Normal(3, "a", 1'000'003);
  const std::vector<std::vector<model::Stretch>> lists = {
      {{0, 1'000'003}}, {{1, 2}, {5, 1}, {7, 0}, {7, 9}}, {{3, 700'001}, {700'010, 5}}, {}};
  for (const std::vector<model::Stretch>& stretches : lists) {
    std::vector<float> expected;
    for (const auto& [first, count] : stretches) {
      const auto from = whole.begin() + static_cast<std::ptrdiff_t>(first);
      expected.insert(expected.end(), from, from + static_cast<std::ptrdiff_t>(count));
    }
    std::vector<float> got(expected.size());
    FillNormal(3, "a", 1, stretches, got);
    EXPECT_EQ(got, expected);
  }
}

}  // namespace
}  // namespace longhaul::worker
