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

TEST(Safetensors, OtherTypesAreRefused) {
  const std::string header = R"({"w":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})";
  EXPECT_THAT(Error(Foreign(header, 8)), HasSubstr("as F32 or BF16, got F16"));
}

}  // namespace
}  // namespace longhaul::worker
