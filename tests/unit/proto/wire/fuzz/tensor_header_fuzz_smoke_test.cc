// The fuzz target over damaged headers, the same ones each time.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "proto/wire/tensor_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace longhaul::wire {
namespace {

TEST(TensorHeaderFuzzSmokeTest, DamagedHeaders) {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same bytes each time
  std::array<std::byte, kTensorHeaderBytes> good;
  EncodeTensorHeader({.shards = 3, .slices = 3, .blob_bytes = 1000, .chunks = 5}, good);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> bytes(good.size());
    for (size_t k = 0; k < good.size(); ++k) bytes[k] = static_cast<uint8_t>(good[k]);
    for (unsigned flips = random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1u << (random() % 8));
    }
    if (random() % 10 == 0) bytes.resize(random() % bytes.size());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    if (DecodeTensorHeader(std::as_bytes(std::span(bytes))).ok()) ++accepted;
  }
  // Both ways through the parser were taken.
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 19'000);
}

}  // namespace
}  // namespace longhaul::wire
