// What tests of codecs on a GPU share: contents that reach every branch, and their way to the
// device and back.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "codec/convert.h"
#include "codec/cuda/cuda_codec.h"
#include "tests/support/gpu_test.h"

namespace longhaul::codec::cuda {

using ::longhaul::cuda::DeviceBuffer;
using ::longhaul::cuda::Stream;
using ::longhaul::testing::Await;
using ::longhaul::testing::Gpu;
using ::longhaul::testing::Must;

inline constexpr size_t kGuard = 64;  // bytes behind an output, which must stay as they are
inline constexpr std::byte kPoison{0xa5};

inline DeviceBuffer Upload(std::span<const std::byte> bytes, Stream* stream) {
  DeviceBuffer buffer = Must(DeviceBuffer::Create(Gpu(), std::max<size_t>(bytes.size(), 64)));
  if (!bytes.empty()) {
    EXPECT_TRUE(stream->Copy(buffer.data_dev(), bytes.data(), bytes.size()).ok());
  }
  Await(*stream);
  return buffer;
}

inline std::vector<std::byte> Download(const DeviceBuffer& buffer, size_t bytes, Stream* stream) {
  std::vector<std::byte> result(bytes);
  EXPECT_TRUE(stream->Copy(result.data(), buffer.data_dev(), bytes).ok());
  Await(*stream);
  return result;
}

// Offset of the first difference, or -1.
inline int64_t FirstDifference(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return at == a.end() && other == b.end() ? -1 : at - a.begin();
}

inline uint32_t Bits(float value, Dtype dtype) {
  if (dtype == Dtype::kF32) return std::bit_cast<uint32_t>(value);
  return dtype == Dtype::kBf16 ? F32ToBf16(value) : F32ToF16(value);
}

// Elements as bits, so that any pattern can be had: numbers of wide range, bits at random (NaNs,
// infinities, subnormals), zeros, one huge outlier, a constant, a few numbers that cancel, about
// normal numbers as those of real tensors, the same with outliers, whole numbers (quotients in the
// middle of two codes) with few that are tiny.
inline constexpr uint64_t kKinds = 10;
inline std::vector<std::byte> Contents(std::mt19937_64* random, Dtype dtype, uint64_t elements,
                                       uint64_t kind) {
  const int spread = static_cast<int>((*random)() % 20);
  std::vector<std::byte> bytes(elements * BytesPerElement(dtype));
  const uint64_t outlier = (*random)() % std::max<uint64_t>(elements, 1);
  const auto constant = static_cast<uint32_t>((*random)());
  const float mean = std::ldexp(static_cast<float>(constant % 64), -spread);
  const uint32_t most = 2 + constant % 30;
  for (uint64_t k = 0; k < elements; ++k) {
    auto bits = static_cast<uint32_t>((*random)());
    if (kind <= 1) {
      // A number in (-2, 2), and of smaller exponents for a wider spread.
      const int down = spread == 0 ? 0 : static_cast<int>((*random)() % spread);
      if (dtype == Dtype::kF32)
        bits = (bits & 0x807fffff) | static_cast<uint32_t>(127 - down) << 23;
      if (dtype == Dtype::kBf16) bits = (bits & 0x807f) | static_cast<uint32_t>(127 - down) << 7;
      if (dtype == Dtype::kF16)
        bits = (bits & 0x83ff) | static_cast<uint32_t>(15 - down % 16) << 10;
      if (kind == 1 && k == outlier) {
        bits = dtype == Dtype::kF32 ? 0x7f7fffff : dtype == Dtype::kBf16 ? 0x7f7f : 0x7bff;
      }
    } else if (kind == 2) {
      bits = 0;
    } else if (kind == 3) {
      bits = constant;
    } else if (kind == 4) {
      bits &= dtype == Dtype::kF32 ? 0x80ffffff : 0x80ff;  // small and subnormal
    } else if (kind == 5) {
      const uint32_t sign = dtype == Dtype::kF32 ? 0x80000000 : 0x8000;
      const uint32_t small = dtype == Dtype::kF16 ? 0x0001 : dtype == Dtype::kBf16 ? 0x1f83 : 1;
      const uint32_t one = dtype == Dtype::kF32   ? 0x3f800000
                           : dtype == Dtype::kF16 ? 0x3c00
                                                  : 0x3f80;
      const uint32_t any = bits >> 8 & 15;
      bits = (any < 8 ? 0 : any < 11 ? small : one) | (bits & sign);
    } else if (kind == 7 || kind == 8) {
      float sum = mean - 2;
      for (int byte = 0; byte < 4; ++byte) {
        sum += static_cast<float>(bits >> 8 * byte & 255) / 256;
      }
      bits = Bits(kind == 8 && (*random)() % 97 == 0 ? 50 * sum : sum, dtype);
    } else if (kind == 9) {
      const auto quarter = most / 4;
      const auto whole = static_cast<float>(bits % most) - static_cast<float>(quarter);
      const int down = (bits >> 16) % 50 == 0 ? static_cast<int>((bits >> 24) % 24) : 0;
      bits = Bits(std::ldexp(whole, -down - spread / 4), dtype);
    }
    std::memcpy(bytes.data() + k * BytesPerElement(dtype), &bits, BytesPerElement(dtype));
  }
  return bytes;
}

inline std::vector<std::byte> Contents(std::mt19937_64* random, Dtype dtype, uint64_t elements) {
  return Contents(random, dtype, elements, (*random)() % kKinds);
}

inline Dtype AnyDtype(std::mt19937_64* random) {
  return static_cast<Dtype>(1 + (*random)() % 3);
}

inline Shape AnyShape(std::mt19937_64* random) {
  return {static_cast<uint32_t>(1 + (*random)() % 4), static_cast<uint32_t>(1 + (*random)() % 9),
          static_cast<uint32_t>(1 + (*random)() % 700)};
}

inline std::vector<std::byte> Scratch(const CudaCodec& codec, const Shape& shape) {
  return std::vector<std::byte>(codec.cpu().WorkspaceBytes(shape) + 64);
}
inline std::span<std::byte> Aligned(const CudaCodec& codec, const Shape& shape,
                                    std::vector<std::byte>* scratch) {
  const auto misaligned = reinterpret_cast<uintptr_t>(scratch->data()) % 64;
  return std::span(*scratch).subspan((64 - misaligned) % 64, codec.cpu().WorkspaceBytes(shape));
}

}  // namespace longhaul::codec::cuda
