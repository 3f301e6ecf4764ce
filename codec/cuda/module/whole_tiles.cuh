// For kernels in which a thread has a whole tile of 64 numbers that follow the tile before: no
// fold, no transposition of bits crosses lanes. The tiles of a warp come through shared memory, so
// that loads are of whole lines.
#pragma once

#include <cuda_bf16.h>

#include "codec/cuda/module/device_tile.cuh"

namespace longhaul::codec::cuda {

inline constexpr uint32_t kWholeTile = 64;
// Units of 16 bytes of a tile.
inline constexpr uint32_t kTileUnits = kWholeTile * 2 / 16, kTileUnitsOfF32 = kWholeTile * 4 / 16;

// Whether a tensor consists of such tiles.
inline bool HasWholeTiles(const TensorArgs& tensor, uint32_t tile, uint32_t dtype = kBf16) {
  return tensor.dtype == dtype && tile == kWholeTile && tensor.channels % kWholeTile == 0 &&
         reinterpret_cast<uintptr_t>(tensor.data_dev) % 16 == 0;
}

// Runs of up to 32 tiles of one sample, counted over the tensor.
struct Runs {
  uint64_t sample_tiles;
  Divisor of_sample;
  uint32_t all;
};
inline Runs MakeRuns(uint32_t samples, uint64_t sample_tiles) {
  const uint64_t of_sample = (sample_tiles + kWarp - 1) / kWarp;
  return {sample_tiles, MakeDivisor(of_sample), static_cast<uint32_t>(of_sample * samples)};
}

class Run {
 public:
  __device__ Run(const Runs& runs, uint32_t index)
      : sample(index / runs.of_sample),
        of_sample(index - sample * runs.of_sample.value),
        first(of_sample * kWarp),
        tensor_tile(sample * runs.sample_tiles + first),
        count(static_cast<uint32_t>(min(runs.sample_tiles - first, uint64_t{kWarp}))) {}

  uint32_t sample, of_sample;
  uint32_t first;        // tile of the sample
  uint64_t tensor_tile;  // the same
  uint32_t count;
};

// 32 tiles of kUnits units in shared memory, one for each lane. Unit u of tile t lies at u ^ t % 8:
// eight lanes that read or write the same unit of theirs meet all banks.
template <uint32_t kUnits>
class TilesOf {
 public:
  __device__ explicit TilesOf(uint4* units) : units_(units) {}

  // Begins to load `count` tiles; what was read before has been read by all lanes.
  __device__ void Load(const void* tensor, uint64_t first_tile, uint32_t count) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint4* const from = static_cast<const uint4*>(tensor) + first_tile * kUnits + lane;
    // A few tiles at a time: places that are eight tiles apart differ by their bytes alone.
    const uint32_t tile = lane / kUnits;
    uint32_t to[kPeriod];
#pragma unroll
    for (uint32_t k = 0; k < kPeriod; ++k) {
      to[k] = Address(At(tile + k * kAtOnce, lane % kUnits));
    }
    if (count == kWarp) {
      LoadSome<0>(from, to, kWarp);
    } else {
      LoadSome<0>(from, to, count - min(count, tile));
    }
  }
  // What was loaded since the last call is one group of loads.
  __device__ static void Commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // Until all groups of this warp's lanes but the last kPending are there.
  template <int kPending>
  __device__ static void Await() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
    __syncwarp();
  }
  __device__ uint4* At(uint32_t tile, uint32_t unit) const {
    return units_ + tile * kUnits + (unit ^ tile % 8);
  }
  // A unit of this lane's tile.
  __device__ uint4 Unit(uint32_t unit) const {
    return *At(threadIdx.x % kWarp, unit);
  }

 private:
  // Tiles that the warp loads units of at once, and after how many such loads eight tiles are done.
  static constexpr uint32_t kAtOnce = kWarp / kUnits, kPeriod = 8 / kAtOnce;

  // The tiles 0, kAtOnce, 2 kAtOnce, ... from this lane's on, of those that are below `count`.
  template <uint32_t kIndex>
  __device__ static void LoadSome(const uint4* from, const uint32_t (&to)[kPeriod],
                                  uint32_t count) {
    if (kAtOnce * kIndex < count) {
      asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;" ::"r"(to[kIndex % kPeriod]),
                   "l"(from), "n"(kIndex / kPeriod * 8 * kUnits * sizeof(uint4)),
                   "n"(kIndex * kWarp * sizeof(uint4))
                   : "memory");
    }
    if constexpr (kIndex + 1 < kUnits) LoadSome<kIndex + 1>(from, to, count);
  }
  __device__ static uint32_t Address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }

  uint4* const units_;
};
using WarpTiles = TilesOf<kTileUnits>;

__device__ inline float LowOf(uint32_t two) {
  return __uint_as_float(two << 16);
}
__device__ inline float HighOf(uint32_t two) {
  return __uint_as_float(two & 0xffff0000);
}

__device__ inline __nv_bfloat162 AsBf16s(uint32_t two) {
  return *reinterpret_cast<const __nv_bfloat162*>(&two);
}

// To nearest even; `low` in the lower half.
__device__ inline uint32_t ToBf16s(float low, float high) {
  uint32_t two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

// Takes the first tiles from a mask over a warp's, one for every kLanes lanes: the lane's, or kWarp
// where none is left for it.
template <uint32_t kLanes>
__device__ inline uint32_t TakeTile(uint32_t* mask) {
  uint32_t mine = kWarp;
#pragma unroll
  for (uint32_t k = 0; k < kWarp / kLanes; ++k) {
    if (*mask != 0 && threadIdx.x % kWarp / kLanes == k) {
      mine = __ffs(static_cast<int>(*mask)) - 1;
    }
    *mask &= *mask - 1;
  }
  return mine;
}

// Exchanges the bits of `high` at kMask with those of `low` kShift above them.
template <int kShift, uint32_t kMask>
__device__ inline void ExchangeBits(uint32_t& low, uint32_t& high) {
  const uint32_t of_low = low >> kShift;
  const uint32_t of_high = high << kShift;
  low = (low & kMask) | (of_high & ~kMask);
  high = (of_low & kMask) | (high & ~kMask);
}

// Bit 4 n + b of word w becomes bit 4 n + w of word b: with code 4 n + w of 32 codes at nibble n of
// word w, words become bit planes. Its own inverse.
__device__ inline void TransposeFour(uint32_t (&words)[4]) {
  ExchangeBits<1, 0x55555555>(words[0], words[1]);
  ExchangeBits<1, 0x55555555>(words[2], words[3]);
  ExchangeBits<2, 0x33333333>(words[0], words[2]);
  ExchangeBits<2, 0x33333333>(words[1], words[3]);
}

}  // namespace longhaul::codec::cuda
