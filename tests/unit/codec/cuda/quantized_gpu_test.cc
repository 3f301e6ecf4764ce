// Matrices that a GPU dequantizes have the CPU's bits.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "codec/cuda/cuda_quantized.h"
#include "codec/quantized/format.h"
#include "codec/quantized/int8.h"
#include "codec/quantized/nf4.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

using quantized::Int8Layout;
using quantized::MatrixShape;
using quantized::Nf4Layout;

class QuantizedOnGpu : public ::testing::Test {
 protected:
  // Runs `dequantize`, which writes to the address that it gets, and compares with `expected`.
  template <class T, class Dequantize>
  void ExpectBits(const std::vector<T>& expected, const Dequantize& dequantize) {
    const auto bytes = std::as_bytes(std::span(expected));
    DeviceBuffer out = Upload(std::vector<std::byte>(bytes.size() + kGuard, kPoison), &stream_);
    ASSERT_TRUE(dequantize(out.data_dev()).ok());
    const auto found = Download(out, bytes.size() + kGuard, &stream_);
    ASSERT_EQ(FirstDifference(std::span(found).first(bytes.size()), bytes), -1);
    for (size_t k = bytes.size(); k < found.size(); ++k) ASSERT_EQ(found[k], kPoison);
  }
  std::vector<float> Weights(const MatrixShape& shape) {
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<float> values(shape.rows * shape.columns);
    for (float& value : values) value = normal(random_);
    if (random_() % 4 == 0) values[random_() % values.size()] *= 1000;
    if (random_() % 5 == 0) {
      std::fill_n(values.begin(), std::min<size_t>(values.size(), 200), 0.0f);
    }
    return values;
  }

  std::mt19937_64 random_{20261129};
  Stream stream_ = Must(Stream::Create(Gpu()));
};

TEST_F(QuantizedOnGpu, BitsAreTheCpus) {
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    MatrixShape shape{1 + random_() % 90, 1 + random_() % 300};
    if (round % 3 == 0) shape = {64 * (1 + random_() % 20), 64 * (1 + random_() % 20)};
    if (round == 0) shape = {4096, 11008};
    if (round == 1) shape = {1, 1};
    const std::vector<float> values = Weights(shape);
    std::vector<float> numbers(values.size());
    std::vector<uint16_t> halves(values.size());

    const Nf4Layout nf4(values.size());
    std::vector<std::byte> stored(nf4.bytes);
    ASSERT_TRUE(quantized::Nf4Quantize(values, stored.data()));
    quantized::Nf4Dequantize(stored.data(), values.size(), 0, nf4.blocks, numbers.data());
    quantized::Nf4Dequantize(stored.data(), values.size(), 0, nf4.blocks, halves.data());
    const DeviceBuffer in_nf4 = Upload(stored, &stream_);
    ASSERT_NO_FATAL_FAILURE(ExpectBits(numbers, [&](void* out) {
      return Nf4Dequantize(in_nf4.data_dev(), values.size(), /*bf16=*/false, out, stream_);
    }));
    ASSERT_NO_FATAL_FAILURE(ExpectBits(halves, [&](void* out) {
      return Nf4Dequantize(in_nf4.data_dev(), values.size(), /*bf16=*/true, out, stream_);
    }));

    stored.resize(Int8Layout(shape.rows, shape.columns).bytes);
    ASSERT_TRUE(quantized::Int8Quantize(values, shape, 0, shape.rows, stored.data()));
    quantized::Int8Dequantize(stored.data(), shape, 0, shape.rows, numbers.data());
    quantized::Int8Dequantize(stored.data(), shape, 0, shape.rows, halves.data());
    const DeviceBuffer in_int8 = Upload(stored, &stream_);
    ASSERT_NO_FATAL_FAILURE(ExpectBits(numbers, [&](void* out) {
      return Int8Dequantize(in_int8.data_dev(), shape, /*bf16=*/false, out, stream_);
    }));
    ASSERT_NO_FATAL_FAILURE(ExpectBits(halves, [&](void* out) {
      return Int8Dequantize(in_int8.data_dev(), shape, /*bf16=*/true, out, stream_);
    }));
  }
}

TEST_F(QuantizedOnGpu, MemoryThatIsNoneIsRefused) {
  const Status refused = Nf4Dequantize(nullptr, 64, /*bf16=*/true, nullptr, stream_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_TRUE(Nf4Dequantize(nullptr, 0, /*bf16=*/true, nullptr, stream_).ok());
}

}  // namespace
}  // namespace longhaul::codec::cuda
