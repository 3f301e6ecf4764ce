// Arguments that the kernels of several codecs share. Plain types, because the program and the CUDA
// module both compile them (base/cuda/table.h).
#pragma once

#include <cstdint>

namespace longhaul::codec::cuda {

// A tensor of at most 2^32 elements in device memory. dtype is the number in blob headers: 1 fp32,
// 2 fp16, 3 bf16.
struct TensorArgs {
  void* data_dev;
  uint32_t dtype;
  uint32_t samples, tokens, channels;
};

// A blob's header as 8 words. Its count of non-finite tiles is 0; kernels of encoders add to it.
struct HeaderArgs {
  uint64_t words[8];
};

// A divisor for 32-bit numbers, from 1 to 2^32 - 1. `reciprocal` is 2^64 / value, rounded up, or 0
// if value is 1. By `reciprocal`, kernels replace a division by two multiplications.
struct Divisor {
  uint32_t value;
  uint64_t reciprocal;
};
inline Divisor MakeDivisor(uint64_t value) {
  return {static_cast<uint32_t>(value), value == 1 ? 0 : ~uint64_t{0} / value + 1};
}

// Bits that a decoder sets in the caller's word for faults (`fault_dev`). kFaultContents: the
// payload is invalid, or does not fit this side's state. kFaultCut: the blob is longer than its
// memory. kFaultTables: the tables of predict differ between sender and receiver.
inline constexpr uint32_t kFaultContents = 1, kFaultCut = 2, kFaultTables = 4;

// Warps collect the largest magnitude of a sample in kMaximumPlaces words; each word has the
// maximum of some warps. With only one word, all warps would wait for each other. The words are
// kMaximumStride words apart, so that each lies in a cache sector of its own.
inline constexpr uint32_t kMaximumPlaces = 16;
inline constexpr uint64_t kMaximumStride = 8;  // uint32
// Returns the bytes of these words for all samples.
constexpr uint64_t MaximaBytes(uint64_t samples) {
  return samples * kMaximumPlaces * kMaximumStride * 4;
}

}  // namespace longhaul::codec::cuda
