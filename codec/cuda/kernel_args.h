// Arguments that the kernels of several codecs share: plain types, compiled on both sides of dlopen
// (base/cuda/table.h).
#pragma once

#include <cstdint>

namespace longhaul::codec::cuda {

// A tensor in device memory, of at most 2^32 elements. dtype is the blob header's number (1 fp32,
// 2 fp16, 3 bf16).
struct TensorArgs {
  void* data_dev;
  uint32_t dtype;
  uint32_t samples, tokens, channels;
};

// The header of a blob whose count of non-finite tiles is 0: encoders add to it.
struct HeaderArgs {
  uint64_t words[8];
};

// A divisor of 32-bit numbers, and 2^64 / value, rounded up (0 for 1). Kernels divide by it with
// two multiplications.
struct Divisor {
  uint32_t value;
  uint64_t reciprocal;
};
inline Divisor MakeDivisor(uint64_t value) {
  return {static_cast<uint32_t>(value), value == 1 ? 0 : ~uint64_t{0} / value + 1};
}

// Bits that a decoder sets in the caller's word for faults. kFaultContents: no encoder writes this
// payload. kFaultCut: the blob is longer than its memory. kFaultTables: the two sides' tables of
// predict differ.
inline constexpr uint32_t kFaultContents = 1, kFaultCut = 2, kFaultTables = 4;

// Number of words in which warps gather a sample's largest magnitude. With one word all warps would
// queue at it. The kMaximumPlaces words are in different sectors of the cache.
inline constexpr uint32_t kMaximumPlaces = 16;
inline constexpr uint64_t kMaximumStride = 8;  // uint32
constexpr uint64_t MaximaBytes(uint64_t samples) {
  return samples * kMaximumPlaces * kMaximumStride * 4;
}

}  // namespace longhaul::codec::cuda
