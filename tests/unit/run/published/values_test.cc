// Numbers as published checkpoints have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "run/published/safetensors.h"
#include "run/published/weights.h"

namespace longhaul::published {
namespace {

using ::testing::ElementsAre;

model::Parameter ParameterOf(model::Shape shape, bool transposed) {
  model::Parameter parameter;
  parameter.shape = shape;
  parameter.published_transposed = transposed;
  return parameter;
}

std::string TypeOf(ExportType type) {
  return type == ExportType::kFp32 ? "F32" : type == ExportType::kBf16 ? "BF16" : "F16";
}

std::vector<float> ThereAndBack(const std::vector<float>& values, const model::Parameter& parameter,
                                ExportType type) {
  const std::vector<std::byte> bytes = Encode(values, parameter, type);
  const Tensor tensor{.name = "t", .type = TypeOf(type), .shape = PublishedShape(parameter)};
  EXPECT_EQ(bytes.size(), values.size() * BytesOfType(tensor.type));
  std::vector<float> back(values.size());
  Decode(tensor, bytes, parameter, back);
  return back;
}

TEST(DecodeAndEncode, ArePublishedShapes) {
  EXPECT_THAT(PublishedShape(ParameterOf({.rows = 3, .columns = 5}, false)), ElementsAre(3, 5));
  EXPECT_THAT(PublishedShape(ParameterOf({.rows = 3, .columns = 5}, true)), ElementsAre(5, 3));
  EXPECT_THAT(PublishedShape(ParameterOf({.rows = 3}, false)), ElementsAre(3));
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto of = [&](bool transposed) {
    const auto bytes =
        Encode(values, ParameterOf({.rows = 2, .columns = 3}, transposed), ExportType::kFp32);
    std::vector<float> published(6);
    std::memcpy(published.data(), bytes.data(), bytes.size());
    return published;
  };
  EXPECT_THAT(of(false), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(of(true), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(DecodeAndEncode, GiveTheSameBitsOfValuesThatTheTypeHas) {
  for (const bool transposed : {false, true}) {
    const model::Parameter parameter = ParameterOf({.rows = 7, .columns = 11}, transposed);
    for (const ExportType type : {ExportType::kFp32, ExportType::kBf16, ExportType::kFp16}) {
      std::vector<float> values;
      for (int i = 0; i < 77; ++i) {
        // 7 bits of fraction, as BF16 has, and exponents that F16 has.
        values.push_back(std::ldexp(static_cast<float>(128 + i), i % 20 - 20) * (i % 2 ? 1 : -1));
      }
      values[0] = -0.0f;
      values[1] = std::numeric_limits<float>::infinity();
      values[2] = type == ExportType::kFp16 ? 0x1p-24f : 0x1p-133f;  // subnormal
      if (type == ExportType::kFp32) values[3] = std::nextafter(1.0f, 2.0f);
      const std::vector<float> back = ThereAndBack(values, parameter, type);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i]))
            << values[i] << " in " << ToString(type);
      }
    }
  }
}

TEST(DecodeAndEncode, RoundOtherValuesToTheNearestThatIsEven) {
  const model::Parameter parameter = ParameterOf({.rows = 4}, false);
  EXPECT_THAT(ThereAndBack({1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1.8p-8f, -1 - 0x1p-9f}, parameter,
                           ExportType::kBf16),
              ElementsAre(1, 1 + 0x1p-6f, 1 + 0x1p-7f, -1));
  EXPECT_THAT(
      ThereAndBack({1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 65519, 65520}, parameter, ExportType::kFp16),
      ElementsAre(1, 1 + 0x1p-9f, 65504, std::numeric_limits<float>::infinity()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ExportType type : {ExportType::kFp32, ExportType::kBf16, ExportType::kFp16}) {
    for (const float value : ThereAndBack({nan, -nan, nan, nan}, parameter, type)) {
      EXPECT_TRUE(std::isnan(value)) << ToString(type);
    }
  }
}

}  // namespace
}  // namespace longhaul::published
