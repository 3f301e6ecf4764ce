#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

std::string File(const std::vector<NamedArray>& arrays, const SafetensorsMetadata& metadata) {
  std::string bytes = SafetensorsHeader(arrays, metadata);
  for (const NamedArray& array : arrays) {
    bytes.append(reinterpret_cast<const char*>(array.values.data()), array.values.size() * 4);
  }
  return bytes;
}

// A file with this header, whatever it says, and `data_bytes` bytes behind it.
std::string Foreign(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

StatusOr<Safetensors> Parse(const std::string& bytes) {
  return ParseSafetensors(std::as_bytes(std::span(bytes)));
}

std::string Error(const std::string& bytes) {
  const auto parsed = Parse(bytes);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(parsed.status()));
}

TEST(Safetensors, ReadsWhatItWrote) {
  const std::vector<NamedArray> arrays = {{"wte", {2, 3}, {1, 2, 3, 4, 5, -6.5f}},
                                          {"a.scalar", {}, {7}},
                                          {"empty", {0, 4}, {}},
                                          {"b", {1}, {8}}};
  const auto parsed = Parse(File(arrays, {{"step", "50"}, {"run", "tiny-\"wan\""}}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->metadata, (SafetensorsMetadata{{"run", "tiny-\"wan\""}, {"step", "50"}}));
  ASSERT_EQ(parsed->arrays.size(), arrays.size());
  for (const NamedArray& array : arrays) {
    bool found = false;
    for (const NamedArray& other : parsed->arrays) {
      if (other.name != array.name) continue;
      found = true;
      EXPECT_EQ(other.shape, array.shape);
      EXPECT_EQ(other.values, array.values);
    }
    EXPECT_TRUE(found) << array.name;
  }
}

TEST(Safetensors, LayoutIsTheFormats) {
  const std::string bytes = File({{"w", {2}, {1.0f, 2.0f}}}, {{"k", "v"}});
  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"data_offsets":[0,8],"dtype":"F32","shape":[2]}})";
  std::string expected(8, '\0');
  expected[0] = static_cast<char>((json.size() + 7) / 8 * 8);
  expected += json;
  expected.resize(8 + (json.size() + 7) / 8 * 8, ' ');
  expected += std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  EXPECT_EQ(bytes, expected);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string good = File({{"w", {3}, {1, 2, 3}}, {"v", {1}, {4}}}, {{"k", "v"}});
  ASSERT_TRUE(Parse(good).ok());
  for (size_t size = 0; size < good.size(); ++size) Error(good.substr(0, size));
  EXPECT_THAT(Error(good + "x"), HasSubstr("16 bytes, but 17 follow"));
}

TEST(Safetensors, AnyChangedHeaderByteIsReadOrRefused) {
  const std::string good = File({{"w", {3}, {1, 2, 3}}, {"v", {1}, {4}}}, {{"k", "v"}});
  for (size_t at = 0; at + 16 < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      const auto parsed = Parse(bytes);  // Under the sanitizers: no byte outside is touched.
      EXPECT_EQ(parsed.ok() ? parsed->arrays.size() : 2, 2u);
    }
  }
}

TEST(Safetensors, HostileHeadersAreRefused) {
  std::string huge(16, '\xff');
  EXPECT_THAT(Error(huge), HasSubstr("promises a header of 18446744073709551615 bytes"));
  EXPECT_THAT(Error(Foreign("{", 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(Error(Foreign("[1]", 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(Error(Foreign(std::string(100'000, '['), 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(Error(Foreign(R"({"w":{}})", 0)), HasSubstr("lacks dtype"));
  EXPECT_THAT(Error(Foreign(R"({"w":3})", 0)), HasSubstr("lacks dtype"));
  EXPECT_THAT(Error(Foreign(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("'a' is no text"));
  EXPECT_THAT(Error(Foreign(R"({"__metadata__":[]})", 0)), HasSubstr("no object"));
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"("w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  const auto one = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
    return Error(Foreign("{" + tensor(dtype, shape, offsets) + "}", 8));
  };
  EXPECT_THAT(one("BF16", "[4]", "[0,8]"), HasSubstr("another dtype than F32"));
  EXPECT_THAT(one("F32", "[-2]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("F32", "[2.0]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("F32", "[18446744073709551615]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("F32", "{}", "[0,8]"), HasSubstr("no lists"));
  EXPECT_THAT(one("F32", "[2]", "[0]"), HasSubstr("no lists"));
  EXPECT_THAT(one("F32", "[3]", "[0,8]"), HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("F32", "[2]", "[8,0]"), HasSubstr("do not fit its shape"));
  // 2^62 x 4 bytes wrap around to 0.
  EXPECT_THAT(one("F32", "[4611686018427387904]", "[0,0]"), HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("F32", "[2]", "[4,12]"), HasSubstr("begins at byte 4 instead of 0"));
  EXPECT_THAT(one("F32", "[2]", "[18446744073709551608,18446744073709551616]"),
              HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("F32", "[1]", "[0,4]"), HasSubstr("it was cut"));
  EXPECT_THAT(one("F32", "[4]", "[0,16]"), HasSubstr("it was cut"));
  const std::string overlap = "{" + tensor("F32", "[2]", "[0,8]") +
                              R"(,"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  EXPECT_THAT(Error(Foreign(overlap, 8)), HasSubstr("'x' begins at byte 4 instead of 8"));
}

}  // namespace
}  // namespace longhaul::worker
