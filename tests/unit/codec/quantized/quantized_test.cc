// Matrices are quantized and dequantized as by bitsandbytes, bit for bit
// (tests/fixtures/quantized/make_quantized.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "codec/convert.h"
#include "codec/quantized/format.h"
#include "codec/quantized/int8.h"
#include "codec/quantized/maps.h"
#include "codec/quantized/nf4.h"
#include "run/published/safetensors.h"

namespace longhaul::codec::quantized {
namespace {

// The golden file's tensors.
class Golden {
 public:
  Golden() {
    const auto file = ReadFile(
        std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/quantized/quantized.safetensors",
        uint64_t{16} << 20);
    EXPECT_TRUE(file.ok()) << file.status();
    bytes_ = *file;
    const auto table = published::ParseSafetensorsTable(
        std::as_bytes(std::span(bytes_.data(), bytes_.size())), bytes_.size());
    EXPECT_TRUE(table.ok()) << table.status();
    for (const published::TensorEntry& entry : table->tensors) entries_[entry.name] = entry;
  }
  template <class T>
  std::vector<T> Values(const std::string& name) const {
    const published::TensorEntry& entry = entries_.at(name);
    std::vector<T> values((entry.end - entry.begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + entry.begin, entry.end - entry.begin);
    return values;
  }
  MatrixShape ShapeOf(const std::string& name) const {
    const std::vector<int64_t>& shape = entries_.at(name + ".values").shape;
    return {static_cast<uint64_t>(shape[0]), static_cast<uint64_t>(shape[1])};
  }

 private:
  std::string bytes_;
  std::map<std::string, published::TensorEntry> entries_;
};

const Golden& TheGolden() {
  static const Golden golden;
  return golden;
}

// Also tells -0 from 0.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

template <class T>
std::vector<T> Section(const std::vector<std::byte>& stored, uint64_t offset, uint64_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), stored.data() + offset, count * sizeof(T));
  return values;
}

TEST(QuantizedMaps, AreThoseOfBitsandbytes) {
  EXPECT_EQ(std::vector<float>(std::begin(kNf4Map.values), std::end(kNf4Map.values)),
            TheGolden().Values<float>("nf4_map"));
  EXPECT_EQ(std::vector<float>(std::begin(kDynamicMap.values), std::end(kDynamicMap.values)),
            TheGolden().Values<float>("dynamic_map"));
}

class QuantizedMatrix : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<float> values_ = TheGolden().Values<float>(GetParam() + ".values");
  MatrixShape shape_ = TheGolden().ShapeOf(GetParam());
  const uint64_t elements_ = values_.size();
};

class Nf4 : public QuantizedMatrix {
 protected:
  template <class T>
  std::vector<T> Golden(const std::string& part) const {
    return TheGolden().Values<T>(GetParam() + ".nf4." + part);
  }
  const Nf4Layout layout_{elements_};
};

TEST_P(Nf4, QuantizesAsBitsandbytes) {
  std::vector<std::byte> stored(layout_.bytes);
  std::vector<float> absmax(layout_.blocks);
  ASSERT_TRUE(Nf4QuantizeBlocks(values_, 0, layout_.blocks, absmax, stored.data()));
  const float mean = Golden<float>("mean")[0];
  EXPECT_LE(std::abs(Nf4MeanOfAbsmax(absmax) - mean), 2e-7 * mean);
  Nf4StoreAbsmax(absmax, mean, elements_, stored.data());
  EXPECT_EQ(Section<uint8_t>(stored, layout_.levels, (elements_ + 1) / 2),
            Golden<uint8_t>("levels"));
  EXPECT_EQ(Section<uint8_t>(stored, layout_.codes, layout_.blocks), Golden<uint8_t>("codes"));
  EXPECT_EQ(Bits(Section<float>(stored, 4, layout_.groups)), Bits(Golden<float>("group_absmax")));
  EXPECT_EQ(Section<float>(stored, 0, 1)[0], mean);
}

TEST_P(Nf4, DequantizesAsBitsandbytes) {
  std::vector<std::byte> stored(layout_.bytes);
  const auto put = [&stored](uint64_t offset, const auto& values) {
    std::memcpy(stored.data() + offset, values.data(), values.size() * sizeof(values[0]));
  };
  put(0, Golden<float>("mean"));
  put(4, Golden<float>("group_absmax"));
  put(layout_.codes, Golden<uint8_t>("codes"));
  put(layout_.levels, Golden<uint8_t>("levels"));
  std::vector<float> numbers(elements_);
  Nf4Dequantize(stored.data(), elements_, 0, layout_.blocks, numbers.data());
  EXPECT_EQ(Bits(numbers), Bits(Golden<float>("fp32")));
  std::vector<uint16_t> halves(elements_);
  const uint64_t middle = layout_.blocks / 2;  // in two parts
  Nf4Dequantize(stored.data(), elements_, middle, layout_.blocks, halves.data());
  Nf4Dequantize(stored.data(), elements_, 0, middle, halves.data());
  EXPECT_EQ(halves, Golden<uint16_t>("bf16"));
}

// By parts or at once, and whatever threads do it.
TEST_P(Nf4, OfPartsIsThatOfTheWhole) {
  std::vector<std::byte> whole(layout_.bytes), parts(layout_.bytes);
  ASSERT_TRUE(Nf4Quantize(values_, whole.data()));
  std::vector<float> absmax(layout_.blocks);
  for (uint64_t block = layout_.blocks; block-- > 0;) {
    ASSERT_TRUE(Nf4QuantizeBlocks(values_, block, block + 1, absmax, parts.data()));
  }
  Nf4StoreAbsmax(absmax, Nf4MeanOfAbsmax(absmax), elements_, parts.data());
  EXPECT_EQ(whole, parts);
  std::vector<float> numbers(elements_);
  Nf4Dequantize(whole.data(), elements_, 0, layout_.blocks, numbers.data());
  // Neighbouring levels are at most 0.31 apart; an absmax is off by a step of its group's map.
  for (uint64_t i = 0; i < elements_; ++i) {
    const float of_block = absmax[i / kNf4Block];
    const float largest = *std::ranges::max_element(absmax);
    ASSERT_LE(std::abs(numbers[i] - values_[i]), 0.16f * of_block + 0.02f * largest) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Matrices, Nf4, ::testing::Values("odd", "ragged", "huge", "zeros", "one"),
                         [](const auto& test) { return test.param; });

class Int8 : public QuantizedMatrix {
 protected:
  template <class T>
  std::vector<T> Golden(const std::string& part) const {
    return TheGolden().Values<T>(GetParam() + ".int8." + part);
  }
};

TEST_P(Int8, IsThatOfBitsandbytes) {
  const Int8Layout layout(shape_.rows, shape_.columns);
  std::vector<std::byte> stored(layout.bytes);
  ASSERT_TRUE(Int8Quantize(values_, shape_, 0, shape_.rows, stored.data()));
  EXPECT_EQ(Section<int8_t>(stored, layout.elements, elements_), Golden<int8_t>("elements"));
  EXPECT_EQ(Bits(Section<float>(stored, 0, shape_.rows)), Bits(Golden<float>("absmax")));
  std::vector<float> numbers(elements_);
  Int8Dequantize(stored.data(), shape_, 0, shape_.rows, numbers.data());
  EXPECT_EQ(Bits(numbers), Bits(Golden<float>("fp32")));
  std::vector<uint16_t> halves(elements_);
  const uint64_t middle = shape_.rows / 2;
  Int8Dequantize(stored.data(), shape_, middle, shape_.rows, halves.data());
  Int8Dequantize(stored.data(), shape_, 0, middle, halves.data());
  EXPECT_EQ(halves, Golden<uint16_t>("bf16"));
}

INSTANTIATE_TEST_SUITE_P(Matrices, Int8, ::testing::Values("odd", "ragged", "zeros", "one"),
                         [](const auto& test) { return test.param; });

TEST(Quantized, WhatIsNotFiniteIsRefused) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 7e4f}) {
    std::vector<float> values(200, 0.5f);
    values[150] = bad;
    const MatrixShape shape{10, 20};
    std::vector<std::byte> stored(std::max(Nf4Layout(200).bytes, Int8Layout(10, 20).bytes));
    EXPECT_EQ(Nf4Quantize(values, stored.data()), std::isfinite(bad)) << bad;
    EXPECT_FALSE(Int8Quantize(values, shape, 0, 10, stored.data())) << bad;
    EXPECT_TRUE(Int8Quantize(values, shape, 0, 7, stored.data())) << bad;
  }
}

TEST(Quantized, ABillionElementsTakeABitMoreThanHalfAByteEach) {
  constexpr uint64_t kElements = 1'000'000'000;
  EXPECT_NEAR(static_cast<double>(Nf4Layout(kElements).bytes), 0.51587 * kElements,
              1e-4 * kElements);
  constexpr uint64_t kRows = kElements / 4000;
  EXPECT_NEAR(static_cast<double>(Int8Layout(kRows, 4000).bytes), 1.001 * kElements,
              1e-4 * kElements);
}

}  // namespace
}  // namespace longhaul::codec::quantized
