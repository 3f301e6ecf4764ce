// What the kernels of the tiled codecs share. A warp has a tile: lane l holds elements l, l + 32,
// ..., so that a plane of bits is one ballot per 32 elements.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_DEVICE_TILE_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_DEVICE_TILE_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "base/philox.h"
#include "codec/convert.h"
#include "codec/cuda/kernel_table.h"
#include "codec/scale.h"

namespace longhaul::codec::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kAllLanes = 0xffffffff;
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kNonfiniteOffset = 48;
inline constexpr uint32_t kF32 = 1, kF16 = 2, kBf16 = 3;

// A failed call must not show up in a later cudaGetLastError.
inline int Launched() {
  return cudaGetLastError();
}

// Enough blocks for `warps` warps, or as many as loop over the rest.
inline unsigned BlocksForWarps(uint64_t warps) {
  constexpr uint64_t kMost = 16384;
  const uint64_t blocks = (warps + kThreads / kWarp - 1) / (kThreads / kWarp);
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

__device__ inline uint64_t WarpIndex() {
  return (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
}
__device__ inline uint64_t WarpCount() {
  return static_cast<uint64_t>(gridDim.x) * blockDim.x / kWarp;
}

__device__ inline float LoadElement(const void* data, uint32_t dtype, uint64_t index) {
  if (dtype == kF32) return static_cast<const float*>(data)[index];
  const uint16_t raw = static_cast<const uint16_t*>(data)[index];
  return dtype == kBf16 ? Bf16ToF32(raw) : F16ToF32(raw);
}

// As it is: what is too large becomes an infinity.
__device__ inline void StoreElement(float value, void* data, uint32_t dtype, uint64_t index) {
  if (dtype == kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = dtype == kBf16 ? F32ToBf16(value) : F32ToF16(value);
  }
}

// As StoreTile of tile.h: what lies outside of the dtype's range becomes its largest number.
__device__ inline void StoreClamped(float value, void* data, uint32_t dtype, uint64_t index) {
  const float limit = dtype == kF32    ? std::numeric_limits<float>::max()
                      : dtype == kBf16 ? std::bit_cast<float>(0x7f7f0000u)
                                       : 65504.0f;
  value = value > limit ? limit : value;
  value = value < -limit ? -limit : value;
  StoreElement(value, data, dtype, index);
}

// The place of tile `tile` of the tensor.
struct TilePlace {
  uint64_t offset;  // of its first element
  uint32_t count;   // elements that are not padding
  uint32_t sample;
};
__device__ inline TilePlace Place(const TensorArgs& tensor, uint64_t tiles_per_token,
                                  uint32_t tile_size, uint64_t tile) {
  const uint64_t token = tile / tiles_per_token;
  const uint64_t channel = tile % tiles_per_token * tile_size;
  const uint64_t left = tensor.channels - channel;
  return {token * tensor.channels + channel,
          static_cast<uint32_t>(left < tile_size ? left : tile_size),
          static_cast<uint32_t>(token / tensor.tokens)};
}

// Element lane + 32 j to values[j], zeros where padded.
template <int kPerLane>
__device__ inline void LoadTile(const TensorArgs& tensor, const TilePlace& place, float* values) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const unsigned k = lane + kWarp * j;
    values[j] =
        k < place.count ? LoadElement(tensor.data_dev, tensor.dtype, place.offset + k) : 0.0f;
  }
}

// The bits of the tile's largest magnitude, in every lane.
template <int kPerLane>
__device__ inline uint32_t LargestMagnitude(const float* values) {
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[j]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return __reduce_max_sync(kAllLanes, largest);
}

// r of rounding.h for an element.
__device__ inline float Noise(const uint32_t* block, uint64_t element) {
  const uint64_t index = element / 4;
  const Philox::Counter words = Philox::Generate(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block[0], block[1]},
      {block[2], block[3]});
  const unsigned word = static_cast<unsigned>(element % 4);
  const uint32_t low = word == 0 ? words[0] : words[1];
  const uint32_t high = word == 2 ? words[2] : words[3];
  return Philox::ToUnit(word < 2 ? low : high);
}

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_DEVICE_TILE_CUH_
