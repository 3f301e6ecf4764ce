#include "run/published/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::published {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::pair<std::string, uint32_t>> kTypes = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8}};

// A file with this header, whatever it says, and `data_bytes` bytes behind it.
std::string FileOf(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

StatusOr<SafetensorsTable> TableOf(const std::string& bytes) {
  return ParseSafetensorsTable(std::as_bytes(std::span(bytes)), bytes.size());
}

std::string TableError(const std::string& bytes) {
  const auto table = TableOf(bytes);
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(table.status()));
}

uint64_t BytesOfEntry(const TensorEntry& entry) {
  uint64_t bytes = BytesOfType(entry.type);
  for (const int64_t extent : entry.shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

TEST(SafetensorsTable, LayoutIsTheFormats) {
  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"data_offsets":[0,8],"dtype":"F32","shape":[2]}})";
  std::string expected(8, '\0');
  expected[0] = static_cast<char>((json.size() + 7) / 8 * 8);
  expected += json;
  expected.resize(8 + (json.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(SafetensorsHeader({{.name = "w", .type = "F32", .shape = {2}}}, {{"k", "v"}}),
            expected);
}

TEST(SafetensorsTable, AFileAsItsOwnLibraryWritesIt) {
  const std::string header =
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}}  )";
  const auto table = TableOf(FileOf(header, 16));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->metadata, (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(table->tensors.size(), 2u);
  const TensorEntry &a = table->tensors[0], &b = table->tensors[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, "F32");
  EXPECT_THAT(a.shape, IsEmpty());
  EXPECT_EQ(a.begin, 8 + header.size());
  EXPECT_EQ(a.end, 12 + header.size());
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.begin, 12 + header.size());
  EXPECT_EQ(b.end, 24 + header.size());
}

TEST(SafetensorsTable, EveryType) {
  for (const auto& [type, bytes] : kTypes) {
    EXPECT_EQ(BytesOfType(type), bytes) << type;
    const std::vector<TensorEntry> tensors = {{.name = "t", .type = type, .shape = {3}}};
    const auto table = TableOf(SafetensorsHeader(tensors, {}) + std::string(3 * bytes, '\1'));
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(table->tensors[0].type, type);
    EXPECT_EQ(table->tensors[0].end - table->tensors[0].begin, 3 * bytes);
  }
  for (const std::string type : {"F4", "f32", "", "F32 ", "F128"}) {
    EXPECT_EQ(BytesOfType(type), 0u);
    const std::string header =
        R"({"t":{"dtype":")" + type + R"(","shape":[0],"data_offsets":[0,0]}})";
    EXPECT_THAT(TableError(FileOf(header, 0)), HasSubstr("a dtype that longhaul does not know"));
  }
}

TEST(SafetensorsTable, FilesWithoutTensorsOrWithEmptyOnes) {
  EXPECT_THAT(TableOf(FileOf("{}", 0))->tensors, IsEmpty());
  EXPECT_THAT(TableOf(SafetensorsHeader({}, {}))->tensors, IsEmpty());
  const std::vector<TensorEntry> tensors = {{.name = "first", .type = "F32", .shape = {0}},
                                            {.name = "one", .type = "U8", .shape = {5}},
                                            {.name = "between", .type = "I64", .shape = {3, 0}},
                                            {.name = "two", .type = "F16", .shape = {2}},
                                            {.name = "last", .type = "F64", .shape = {0, 7}}};
  const auto table = TableOf(SafetensorsHeader(tensors, {}) + std::string(9, '\1'));
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(table->tensors[i].name, tensors[i].name);
    EXPECT_EQ(table->tensors[i].shape, tensors[i].shape);
  }
}

// Random tables: what is written reads as what it was.
TEST(SafetensorsTable, AnyTableReadsAsItWasWritten) {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same tables each time
  const auto below = [&](uint32_t limit) { return random() % limit; };
  for (int round = 0; round < 500; ++round) {
    std::vector<TensorEntry> tensors(below(8));
    uint64_t data = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].name = "tensor." + std::to_string(i) + std::string(below(20), 'x') + "\"\n\u00e9";
      tensors[i].type = kTypes[below(kTypes.size())].first;
      for (uint32_t rank = below(4); rank > 0; --rank) tensors[i].shape.push_back(below(6));
      data += BytesOfEntry(tensors[i]);
    }
    SafetensorsMetadata metadata;
    for (uint32_t keys = below(3); keys > 0; --keys) {
      metadata["key" + std::to_string(below(9))] = std::string(below(30), '\\');
    }
    const std::string header = SafetensorsHeader(tensors, metadata);
    EXPECT_EQ(header.size() % 8, 0u);
    const auto table = TableOf(header + std::string(data, '\1'));
    ASSERT_TRUE(table.ok()) << table.status() << "\n" << header.substr(8);
    EXPECT_EQ(table->metadata, metadata);
    ASSERT_EQ(table->tensors.size(), tensors.size());
    uint64_t covered = header.size();
    for (const TensorEntry& entry : table->tensors) {
      const auto written = std::find_if(tensors.begin(), tensors.end(),
                                        [&](const auto& one) { return one.name == entry.name; });
      ASSERT_NE(written, tensors.end()) << entry.name;
      EXPECT_EQ(entry.type, written->type);
      EXPECT_EQ(entry.shape, written->shape);
      EXPECT_EQ(entry.begin, covered);
      EXPECT_EQ(entry.end - entry.begin, BytesOfEntry(entry));
      covered = entry.end;
    }
    EXPECT_EQ(covered, header.size() + data);
    // Nothing of the tensors' bytes is needed.
    EXPECT_TRUE(ParseSafetensorsTable(std::as_bytes(std::span(header)), header.size() + data).ok());
  }
}

TEST(SafetensorsTable, EveryCutIsRefused) {
  const std::string good =
      SafetensorsHeader({{.name = "w", .type = "F32", .shape = {3}}}, {{"k", "v"}}) +
      std::string(12, '\1');
  ASSERT_TRUE(TableOf(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string error = TableError(good.substr(0, size));
    if (size < 8) {
      EXPECT_THAT(error, HasSubstr("it has " + std::to_string(size) + " bytes"));
    }
  }
  EXPECT_THAT(TableError(good + "x"), HasSubstr("12 bytes, but 13 follow"));
}

TEST(SafetensorsTable, HeaderBytesAreKnownFromTheFirstEight) {
  const std::string header = SafetensorsHeader({}, {{"k", "v"}});
  const auto bytes = std::as_bytes(std::span(header));
  EXPECT_EQ(SafetensorsHeaderBytes(bytes.first(8), header.size()).value(), header.size());
  EXPECT_FALSE(SafetensorsHeaderBytes(bytes.first(7), header.size()).ok());
  EXPECT_FALSE(SafetensorsHeaderBytes(bytes, 7).ok());
  EXPECT_FALSE(SafetensorsHeaderBytes(bytes, header.size() - 1).ok());
  EXPECT_FALSE(ParseSafetensorsTable(bytes.first(header.size() - 1), header.size()).ok());

  const auto of = [](uint64_t json_bytes, uint64_t file_bytes) {
    return SafetensorsHeaderBytes(std::as_bytes(std::span(&json_bytes, 1)), file_bytes);
  };
  EXPECT_EQ(of(100'000'000, 1ull << 40).value(), 100'000'008u);
  EXPECT_FALSE(of(100'000'001, 1ull << 40).ok());  // the format's own limit
  EXPECT_FALSE(of(~uint64_t{0}, ~uint64_t{0}).ok());
  EXPECT_EQ(of(0, 8).value(), 8u);
}

TEST(SafetensorsTable, NoMetadataMayBeNull) {
  const std::string file =
      FileOf(R"({"__metadata__":null,"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  const auto table = ParseSafetensorsTable(std::as_bytes(std::span(file)), file.size());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->metadata.empty());
  EXPECT_EQ(table->tensors.size(), 1u);
}

TEST(SafetensorsTable, OtherFilesAreCalledWhatTheyAre) {
  const std::string rest(200, 'a');
  EXPECT_THAT(TableError("version https://git-lfs.github.com/spec/v1\noid sha256:" + rest),
              HasSubstr("it is a Git LFS pointer; `git lfs pull` fetches the file"));
  EXPECT_THAT(TableError("GGUF\3" + rest), HasSubstr("it is a GGUF file"));
  EXPECT_THAT(TableError("PK\3\4" + rest), HasSubstr("it is a PyTorch file"));
  EXPECT_THAT(TableError("\x80\2" + rest), HasSubstr("it is a PyTorch file"));
  EXPECT_THAT(TableError("<!DOCTYPE html>" + rest), HasSubstr("it is a web page"));
}

TEST(SafetensorsTable, HostileHeadersAreRefused) {
  EXPECT_THAT(TableError(std::string(16, '\xff')),
              HasSubstr("promises a header of 18446744073709551615 bytes"));
  for (const std::string& text : {std::string(), std::string("{"), std::string("[1]"),
                                  std::string(100'000, '['), std::string("{\"\xff\":1}")}) {
    EXPECT_THAT(TableError(FileOf(text, 0)), HasSubstr("no JSON object"));
  }
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(TableError(FileOf("{\"w\":" + deep + "}", 0)), HasSubstr("lacks dtype"));
  EXPECT_THAT(TableError(FileOf(R"({"w":{}})", 0)), HasSubstr("lacks dtype"));
  EXPECT_THAT(TableError(FileOf(R"({"w":3})", 0)), HasSubstr("lacks dtype"));
  EXPECT_THAT(TableError(FileOf(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("'a' is no text"));
  EXPECT_THAT(TableError(FileOf(R"({"__metadata__":[]})", 0)), HasSubstr("no object"));
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"("w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  const auto one = [&](const std::string& shape, const std::string& offsets) {
    return TableError(FileOf("{" + tensor(R"("F32")", shape, offsets) + "}", 8));
  };
  EXPECT_THAT(TableError(FileOf("{" + tensor("4", "[2]", "[0,8]") + "}", 8)),
              HasSubstr("a dtype that longhaul does not know"));
  EXPECT_THAT(one("[-2]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("[2.0]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("[true]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("[18446744073709551615]", "[0,8]"), HasSubstr("impossible shape"));
  EXPECT_THAT(one("{}", "[0,8]"), HasSubstr("no lists"));
  EXPECT_THAT(one("[2]", "[0]"), HasSubstr("no lists"));
  EXPECT_THAT(one("[2]", "[0,8,8]"), HasSubstr("no lists"));
  EXPECT_THAT(one("[3]", "[0,8]"), HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("[2]", "[8,0]"), HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("[2]", "[0,8.0]"), HasSubstr("do not fit its shape"));
  // 2^62 x 4 bytes wrap around to 0.
  EXPECT_THAT(one("[4611686018427387904]", "[0,0]"), HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("[2]", "[18446744073709551608,18446744073709551616]"),
              HasSubstr("do not fit its shape"));
  EXPECT_THAT(one("[2]", "[4,12]"), HasSubstr("begins at byte 4 instead of 0"));
  EXPECT_THAT(one("[1]", "[0,4]"), HasSubstr("it was cut"));
  EXPECT_THAT(one("[4]", "[0,16]"), HasSubstr("it was cut"));
  const auto two = [&](const std::string& offsets) {
    return TableError(FileOf("{" + tensor(R"("F32")", "[2]", "[0,8]") +
                                 R"(,"x":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets +
                                 "}}",
                             12));
  };
  EXPECT_THAT(two("[4,8]"), HasSubstr("'x' begins at byte 4 instead of 8"));   // overlap
  EXPECT_THAT(two("[9,13]"), HasSubstr("'x' begins at byte 9 instead of 8"));  // gap
}

}  // namespace
}  // namespace longhaul::published
