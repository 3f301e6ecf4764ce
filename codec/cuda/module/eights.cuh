// Loads, converts and stores eight elements of a tensor at a time, as bits. In `bits`, an element
// of a 16-bit dtype is in the low half of its word.
#pragma once

#include "codec/cuda/module/device_tile.cuh"

namespace longhaul::codec::cuda {

inline constexpr int kAtATime = 8;

// Returns whether elements have 4 bytes instead of 2.
__device__ inline bool Wide(uint32_t dtype) {
  return dtype == kF32;
}

// Loads `count` elements, at most kAtATime, from element `first` on; the other words become 0.
// `first` must be a multiple of kAtATime, also for StoreBits.
__device__ inline void LoadBits(const void* data, uint32_t dtype, uint64_t first, int count,
                                uint32_t (&bits)[kAtATime]) {
  const bool vectorised = count == kAtATime && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  if (vectorised && Wide(dtype)) {
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const uint32_t*>(data) + first);
    const uint4 low = from[0];
    const uint4 high = from[1];
    const uint32_t all[kAtATime] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) bits[k] = all[k];
  } else if (vectorised) {
    const uint4 all = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + first);
    const uint32_t words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) bits[k] = words[k / 2] >> k % 2 * 16 & 0xffff;
  } else {
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) {
      if (k >= count) {
        bits[k] = 0;
      } else if (Wide(dtype)) {
        bits[k] = static_cast<const uint32_t*>(data)[first + k];
      } else {
        bits[k] = static_cast<const uint16_t*>(data)[first + k];
      }
    }
  }
}

__device__ inline void StoreBits(void* data, uint32_t dtype, uint64_t first, int count,
                                 const uint32_t (&bits)[kAtATime]) {
  const bool vectorised = count == kAtATime && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  if (vectorised && Wide(dtype)) {
    auto* to = reinterpret_cast<uint4*>(static_cast<uint32_t*>(data) + first);
    to[0] = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    to[1] = make_uint4(bits[4], bits[5], bits[6], bits[7]);
  } else if (vectorised) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + first) =
        make_uint4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                   bits[6] | bits[7] << 16);
  } else {
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) {
      if (k < count) {
        if (Wide(dtype)) {
          static_cast<uint32_t*>(data)[first + k] = bits[k];
        } else {
          static_cast<uint16_t*>(data)[first + k] = static_cast<uint16_t>(bits[k]);
        }
      }
    }
  }
}

// Converts between dtypes, rounding to nearest even. If both dtypes are equal, all bits stay as
// they are, also those of NaNs.
__device__ inline void Convert(uint32_t from, uint32_t to, uint32_t (&bits)[kAtATime]) {
  if (from == to) return;
#pragma unroll
  for (int k = 0; k < kAtATime; ++k) {
    const auto half = static_cast<uint16_t>(bits[k]);
    const float value = from == kF32    ? __uint_as_float(bits[k])
                        : from == kBf16 ? Bf16ToF32(half)
                                        : F16ToF32(half);
    bits[k] = to == kF32    ? __float_as_uint(value)
              : to == kBf16 ? F32ToBf16(value)
                            : F32ToF16(value);
  }
}

}  // namespace longhaul::codec::cuda
