#include "transport/collective/host/reduce.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"

namespace longhaul::collective::host {
namespace {

using ::testing::ElementsAre;

template <class T>
std::vector<T> Reduced(const std::vector<std::vector<T>>& inputs, Dtype dtype,
                       Reduction reduction) {
  std::vector<const void*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  Reduce(in, out.data(), out.size(), dtype, reduction);
  return out;
}

TEST(ReduceTest, SumsInTheOrderOfTheInputs) {
  // In another order the ones would count.
  EXPECT_THAT(Reduced<float>({{0x1p24f, 1}, {1, 1}, {1, 0x1p24f}}, Dtype::kF32, Reduction::kSum),
              ElementsAre(0x1p24f, 0x1p24f + 2));
}

TEST(ReduceTest, RoundsHalvesOnce) {
  const auto bf16 = [](float value) { return F32ToBf16(value); };
  // 1 + 2^-8 + 2^-8 is a bf16; rounded after every step it would stay 1.
  EXPECT_THAT(Reduced<uint16_t>({{bf16(1)}, {bf16(0x1p-8f)}, {bf16(0x1p-8f)}}, Dtype::kBf16,
                                Reduction::kSum),
              ElementsAre(bf16(1 + 0x1p-7f)));
  // Beyond fp16's range on the way, inside it at the end.
  const auto f16 = [](float value) { return F32ToF16(value); };
  EXPECT_THAT(
      Reduced<uint16_t>({{f16(60000)}, {f16(60000)}, {f16(-60000)}}, Dtype::kF16, Reduction::kSum),
      ElementsAre(f16(60000)));
}

TEST(ReduceTest, AZeroKeepsItsSign) {
  EXPECT_TRUE(std::signbit(Reduced<float>({{-0.0f}, {-0.0f}}, Dtype::kF32, Reduction::kSum)[0]));
}

TEST(ReduceTest, AMaximumWithANanIsANan) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  const auto got =
      Reduced<float>({{nan, 1, 1, -infinity}, {1, nan, 2, -3}, {infinity, infinity, -2, -4}},
                     Dtype::kF32, Reduction::kMax);
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], 2);
  EXPECT_EQ(got[3], -3);
}

TEST(ReduceTest, AllLengthsAroundItsBlocks) {
  for (size_t count = 0; count < 600; ++count) {
    std::vector<float> a(count), b(count), right(count);
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = static_cast<float>(2 * i + 1);
      right[i] = static_cast<float>(3 * i + 1);
    }
    ASSERT_EQ(Reduced<float>({a, b}, Dtype::kF32, Reduction::kSum), right) << count;
    // In place of the second.
    const std::vector<const void*> in = {a.data(), b.data()};
    Reduce(in, b.data(), count, Dtype::kF32, Reduction::kSum);
    ASSERT_EQ(b, right) << count;
  }
}

}  // namespace
}  // namespace longhaul::collective::host
