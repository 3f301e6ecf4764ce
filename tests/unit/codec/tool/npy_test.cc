#include "codec/tool/npy.h"

#include <gmock/gmock.h>

#include <cstring>

namespace longhaul::codec {
namespace {

using ::testing::HasSubstr;

std::string File(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  file += static_cast<char>(dictionary.size() & 0xff);
  file += static_cast<char>(dictionary.size() >> 8);
  if (major > 1) file += std::string(2, '\0');
  return file + dictionary + data;
}

StatusOr<NpyArray> Parse(const std::string& file, bool bf16 = false) {
  return ParseNpy(std::as_bytes(std::span(file)), bf16);
}

std::string Dictionary(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }          \n";
}

TEST(Npy, ReadsOneToThreeDimensions) {
  const std::string data(24, 'x');
  EXPECT_EQ(Parse(File(Dictionary("<f4", "(6,)"), data))->shape, (Shape{1, 1, 6}));
  EXPECT_EQ(Parse(File(Dictionary("<f4", "(2, 3)"), data))->shape, (Shape{1, 2, 3}));
  EXPECT_EQ(Parse(File(Dictionary("<f2", "(2, 3, 2)"), data))->shape, (Shape{2, 3, 2}));
  EXPECT_EQ(Parse(File(Dictionary("<f4", "(0, 3)"), ""))->shape, (Shape{1, 0, 3}));
  EXPECT_EQ(Parse(File(Dictionary("<f4", "(6,)"), data, 2))->shape, (Shape{1, 1, 6}));
  EXPECT_EQ(Parse(File(Dictionary("<f4", "(6,)"), data, 3))->shape, (Shape{1, 1, 6}));
}

TEST(Npy, KnowsDtypes) {
  const std::string data(24, 'x');
  EXPECT_EQ(Parse(File(Dictionary("<f4", "(6,)"), data))->dtype, Dtype::kF32);
  EXPECT_EQ(Parse(File(Dictionary("<f2", "(12,)"), data))->dtype, Dtype::kF16);
  EXPECT_EQ(Parse(File(Dictionary("<u2", "(12,)"), data), true)->dtype, Dtype::kBf16);
  EXPECT_THAT(std::string(Message(Parse(File(Dictionary("<u2", "(12,)"), data)).status())),
              HasSubstr("--dtype bf16"));
  EXPECT_FALSE(Parse(File(Dictionary("<f4", "(6,)"), data), true).ok());
}

TEST(Npy, WhatIsWrittenIsRead) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    auto array = MakeArray(dtype, {2, 3, 5});
    ASSERT_TRUE(array.ok());
    for (size_t k = 0; k < array->data.size(); ++k) {
      array->data.span()[k] = static_cast<std::byte>(k);
    }
    const std::string file = FormatNpy(array->view());
    EXPECT_EQ((file.size() - array->data.size()) % 64, 0u);
    const auto again = Parse(file, dtype == Dtype::kBf16);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->shape, array->shape);
    EXPECT_EQ(std::memcmp(again->data.span().data(), array->data.span().data(), array->data.size()),
              0);
  }
}

class Hostile : public ::testing::TestWithParam<std::string> {};

TEST_P(Hostile, IsRefused) {
  EXPECT_EQ(Parse(GetParam()).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    Files, Hostile,
    ::testing::Values(
        "", "\x93NUMPY", "\x93NUMPX\x01", File(Dictionary("<f4", "(6,)"), std::string(24, 'x'), 4),
        File(Dictionary("<f4", "(6,)"), std::string(23, 'x')),
        File(Dictionary("<f4", "(6,)"), std::string(25, 'x')),
        File(Dictionary("<f8", "(3,)"), std::string(24, 'x')),
        File(Dictionary(">f4", "(6,)"), std::string(24, 'x')),
        File(Dictionary("<f4", "()"), std::string(4, 'x')),
        File(Dictionary("<f4", "(1, 1, 1, 1)"), std::string(4, 'x')),
        File(Dictionary("<f4", "(-1,)"), ""), File(Dictionary("<f4", "(1.5,)"), ""),
        File(Dictionary("<f4", "(18446744073709551616,)"), ""),
        File(Dictionary("<f4", "(4294967295, 4294967295, 4294967295)"), ""),
        File(Dictionary("<f4", "(65536, 65536, 65536)"), ""), File(Dictionary("<f4", "(6"), ""),
        File("{'descr': '<f4'}\n", ""), File("{'descr': '<f4', 'descr': '<f4'}\n", ""),
        File("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n", "abcd"),
        File("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}\n", "abcd"),
        File("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x\n", "abcd"),
        File("{'descr': '<f4", ""), File("{", ""), File("", ""),
        std::string("\x93NUMPY\x01\x00\xff\xff{", 11),
        std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13),
        std::string("\x93NUMPY\x02\x00\x01\x00", 10)));

}  // namespace
}  // namespace longhaul::codec
