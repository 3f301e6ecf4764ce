#include "worker/pipeline/boundary_tables.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "base/half.h"

namespace longhaul::worker {
namespace {

using codec::predict::Tables;
using codec::predict::TablesShape;
using ::testing::HasSubstr;

Tables Learned(const TablesShape& shape) {
  Tables tables = *Tables::Create(shape);
  for (uint32_t c = 0; c < shape.channels; ++c) tables.mean()[c] = static_cast<float>(c) * 0.3f - 2;
  for (uint64_t k = 0; k < shape.rows() * shape.channels; ++k) {
    tables.Row(0)[k] = F32ToBf16(static_cast<float>(k) * 0.3f - 2);
  }
  for (size_t k = 0; k < tables.counts().size(); ++k) {
    tables.counts()[k] = static_cast<uint32_t>((1u << 24) - k);
  }
  tables.set_check(0xfedcba9876543210);
  return tables;
}

TEST(BoundaryTables, ComeBackFromACheckpoint) {
  for (const uint32_t pairs : {0u, 8u}) {
    const TablesShape shape{.vocabulary = 5, .channels = 3, .pairs = pairs};
    const Tables tables = Learned(shape);
    std::vector<NamedArray> arrays = ArraysOf(tables, 4);
    EXPECT_EQ(arrays.size(), pairs == 0 ? 5u : 7u);
    // Beside those of another boundary.
    for (NamedArray& array : ArraysOf(*Tables::Create(shape), 14)) arrays.push_back(array);
    const auto read = TablesFrom(arrays, 4, shape);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(read->has_value());
    EXPECT_TRUE(std::ranges::equal((*read)->memory(), tables.memory()));
    EXPECT_EQ((*read)->check(), tables.check());
    const auto none = TablesFrom(arrays, 1, shape);
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
  }
}

TEST(BoundaryTables, OthersAreRefused) {
  const TablesShape shape{.vocabulary = 5, .channels = 3, .pairs = 8};
  const auto refusal = [&](const std::vector<NamedArray>& arrays, const TablesShape& wanted) {
    const auto read = TablesFrom(arrays, 4, wanted);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(Message(read.status()));
  };
  const std::vector<NamedArray> arrays = ArraysOf(Learned(shape), 4);
  EXPECT_THAT(refusal(arrays, {.vocabulary = 6, .channels = 3, .pairs = 8}),
              HasSubstr("tokens of shape (6, 3) in bf16 in the checkpoint, it has (5, 3) in bf16"));
  EXPECT_THAT(refusal(ArraysOf(Learned({5, 3, 0}), 4), shape),
              HasSubstr("pairs of shape (8, 3) in bf16 in the checkpoint, it has none"));
  const auto with = [&](std::string_view array, float value) {
    std::vector<NamedArray> wrong = arrays;
    for (NamedArray& one : wrong) {
      if (!one.name.ends_with(array)) continue;
      one.halves.empty() ? void(one.values.back() = value)
                         : void(one.halves.back() = F32ToBf16(value));
    }
    return wrong;
  };
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), 0x1p67f, -1e30f}) {
    for (const char* array : {".mean", ".tokens", ".pairs"}) {
      EXPECT_THAT(refusal(with(array, value), shape), HasSubstr("values that no run writes"));
    }
  }
  std::vector<NamedArray> wide = arrays;
  for (NamedArray& one : wide) {
    if (one.halves.empty()) continue;
    one.values.assign(one.halves.size(), 0.0f);
    one.halves.clear();
  }
  EXPECT_THAT(refusal(wide, shape), HasSubstr("it has (5, 3) in fp32"));
  EXPECT_THAT(refusal(with(".token_counts", -1), shape), HasSubstr("values that no run writes"));
}

}  // namespace
}  // namespace longhaul::worker
