#include "tests/bench/transport/collective/compare.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "base/half.h"

namespace longhaul::collective::bench {
namespace {

constexpr uint32_t kRanks = 3;
constexpr uint64_t kCount = 5000;

// What a right all-reduce leaves, to be damaged.
class CompareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Numbers::Create("normal", Dtype::kBf16, kRanks, kCount);
    ASSERT_TRUE(made.ok());
    numbers_.emplace(*std::move(made));
    numbers_->Sums(0, std::as_writable_bytes(std::span(result_)));
  }
  Comparison Look(Promise promise) {
    const auto place = Place::Host();
    const Part part = PartOf({.op = Op::kAllReduce, .count = kCount}, 1, kRanks);
    auto compared = Compare(place.get(), reinterpret_cast<const std::byte*>(result_.data()), part,
                            *numbers_, Dtype::kBf16, kRanks, promise);
    EXPECT_TRUE(compared.ok());
    return *compared;
  }

  std::optional<Numbers> numbers_;
  std::vector<uint16_t> result_ = std::vector<uint16_t>(kCount);
};

TEST_F(CompareTest, TheReferenceIsTheSumInTheOrderOfRanks) {
  std::vector<uint16_t> inputs(kCount);
  std::vector<float> sums(kCount, 0);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    numbers_->Inputs(rank, 0, std::as_writable_bytes(std::span(inputs)));
    for (uint64_t k = 0; k < kCount; ++k) {
      sums[k] = rank == 0 ? Bf16ToF32(inputs[k]) : sums[k] + Bf16ToF32(inputs[k]);
    }
  }
  for (uint64_t k = 0; k < kCount; ++k) ASSERT_EQ(result_[k], F32ToBf16(sums[k])) << k;
  EXPECT_EQ(Look(Promise::kBits).differ, 0);
  EXPECT_EQ(Look(Promise::kBits).elements, kCount);
}

TEST_F(CompareTest, OneBitIsSeen) {
  const uint64_t before = Look(Promise::kBits).checksum;
  result_[4321] ^= 1;
  const Comparison bits = Look(Promise::kBits);
  EXPECT_EQ(bits.differ, 1);
  EXPECT_EQ(bits.wrong, 1);
  EXPECT_NE(bits.checksum, before);
  // The last bit is a rounding.
  EXPECT_EQ(Look(Promise::kRounded).differ, 1);
  EXPECT_EQ(Look(Promise::kRounded).wrong, 0);
  result_[4321] ^= 0x8000;
  EXPECT_EQ(Look(Promise::kRounded).wrong, 1);
}

TEST_F(CompareTest, LossHasALimit) {
  for (uint16_t& number : result_) number = F32ToBf16(Bf16ToF32(number) * 1.05f);
  EXPECT_EQ(Look(Promise::kLossy).wrong, 0);
  EXPECT_GT(Look(Promise::kLossy).differ, kCount / 2);
  for (uint16_t& number : result_) number = F32ToBf16(Bf16ToF32(number) * 1.2f);
  EXPECT_GT(Look(Promise::kLossy).wrong, kCount / 2);
}

TEST_F(CompareTest, ALossyResultIsFinite) {
  result_[7] = 0x7f80;
  EXPECT_EQ(Look(Promise::kLossy).wrong, 1);
}

TEST(PromiseTest, FollowsFromTheVariant) {
  Options options{.ranks = 4};
  const auto promise = [&](const char* text, Op op) {
    return PromiseOf(ParseVariants(text)->front(), op, options);
  };
  EXPECT_EQ(promise("native", Op::kAllReduce), Promise::kBits);
  options.cuda = true;
  EXPECT_EQ(promise("native", Op::kAllReduce), Promise::kRounded);
  EXPECT_EQ(promise("native", Op::kAllGather), Promise::kBits);
  EXPECT_EQ(promise("zip", Op::kReduceScatter), Promise::kBits);
  EXPECT_EQ(promise("taco", Op::kAllGather), Promise::kLossy);
  EXPECT_EQ(promise("taco", Op::kAllToAll), Promise::kBits);
  EXPECT_EQ(promise("switcher", Op::kAllReduce), Promise::kRounded);
  EXPECT_EQ(promise("switcher:with=zip+taco", Op::kAllReduce), Promise::kLossy);
  options.dtype = Dtype::kF32;
  EXPECT_EQ(promise("zip", Op::kReduceScatter), Promise::kRounded);
}

}  // namespace
}  // namespace longhaul::collective::bench
