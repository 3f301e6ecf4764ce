// Helpers for kernels in which each thread handles a whole tile of 64 elements, for tensors without
// padding (HasWholeTiles). No sum and no transposition of bits crosses lanes. A warp loads its
// tiles through shared memory, so that loads from global memory are whole cache lines.
#pragma once

#include <cuda_bf16.h>

#include "codec/cuda/module/device_tile.cuh"

namespace longhaul::codec::cuda {

inline constexpr uint32_t kWholeTile = 64;
// A unit is 16 bytes. The number of units of a tile in bf16, and in fp32.
inline constexpr uint32_t kTileUnits = kWholeTile * 2 / 16, kTileUnitsOfF32 = kWholeTile * 4 / 16;

// Returns whether a tensor has this dtype, consists of tiles of kWholeTile elements without
// padding, and is aligned to 16 bytes. `tile`: the codec's tile size.
inline bool HasWholeTiles(const TensorArgs& tensor, uint32_t tile, uint32_t dtype = kBf16) {
  return tensor.dtype == dtype && tile == kWholeTile && tensor.channels % kWholeTile == 0 &&
         reinterpret_cast<uintptr_t>(tensor.data_dev) % 16 == 0;
}

// A run is up to 32 consecutive tiles of one sample, one for each lane of a warp. Runs have numbers
// over the whole tensor.
struct Runs {
  uint64_t sample_tiles;  // tiles of a sample
  Divisor of_sample;      // runs of a sample
  uint32_t all;           // runs of the tensor
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

  uint32_t sample, of_sample;  // number of the sample, and of the run in the sample
  uint32_t first;              // index of the run's first tile in the sample
  uint64_t tensor_tile;        // index of the same tile in the tensor
  uint32_t count;              // tiles of the run
};

// 32 tiles of kUnits units in shared memory, one for each lane. Unit u of tile t is at place
// u ^ (t % 8) of the tile, so that eight lanes that access the same unit number use all banks.
template <uint32_t kUnits>
class TilesOf {
 public:
  __device__ explicit TilesOf(uint4* units) : units_(units) {}

  // Starts to load `count` tiles, from tile `first_tile` of the tensor on, and does not wait. All
  // lanes of the warp must call it, and must no longer read the tiles that were here before.
  __device__ void Load(const void* tensor, uint64_t first_tile, uint32_t count) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint4* const from = static_cast<const uint4*>(tensor) + first_tile * kUnits + lane;
    // Only kPeriod addresses: places that are eight tiles apart differ by a constant.
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
  // Makes one group of all loads since the last call.
  __device__ static void Commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // Waits until all groups of this warp's lanes have arrived, except the last kPending groups.
  template <int kPending>
  __device__ static void Await() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
    __syncwarp();
  }
  __device__ uint4* At(uint32_t tile, uint32_t unit) const {
    return units_ + tile * kUnits + (unit ^ tile % 8);
  }
  // Returns a unit of this lane's tile.
  __device__ uint4 Unit(uint32_t unit) const {
    return *At(threadIdx.x % kWarp, unit);
  }

 private:
  // kAtOnce: tiles that the warp loads in one step. kPeriod: steps that load eight tiles.
  static constexpr uint32_t kAtOnce = kWarp / kUnits, kPeriod = 8 / kAtOnce;

  // Loads this lane's unit of the tiles 0, kAtOnce, 2 kAtOnce, ... that are below `count`. Tile 0
  // is the lane's tile in the first step.
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

// LowOf and HighOf return the lower and the upper bf16 number of a word, as fp32.
__device__ inline float LowOf(uint32_t two) {
  return __uint_as_float(two << 16);
}
__device__ inline float HighOf(uint32_t two) {
  return __uint_as_float(two & 0xffff0000);
}

__device__ inline __nv_bfloat162 AsBf16s(uint32_t two) {
  return *reinterpret_cast<const __nv_bfloat162*>(&two);
}

// Rounds two numbers to bf16, to nearest even. `low` becomes the lower half of the word.
__device__ inline uint32_t ToBf16s(float low, float high) {
  uint32_t two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

// Removes the lowest kWarp / kLanes tiles from *mask, a mask of the warp's 32 tiles. Each group of
// kLanes lanes gets the number of one removed tile, or kWarp if no tile was left for the group.
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

// Exchanges the bits of `high` at kMask with the bits of `low` that are kShift places above kMask.
template <int kShift, uint32_t kMask>
__device__ inline void ExchangeBits(uint32_t& low, uint32_t& high) {
  const uint32_t of_low = low >> kShift;
  const uint32_t of_high = high << kShift;
  low = (low & kMask) | (of_high & ~kMask);
  high = (of_low & kMask) | (high & ~kMask);
}

// Bit 4 n + b of word w becomes bit 4 n + w of word b. If nibble n of word w has code 4 n + w of 32
// codes, the words become bit planes. The function is its own inverse.
__device__ inline void TransposeFour(uint32_t (&words)[4]) {
  ExchangeBits<1, 0x55555555>(words[0], words[1]);
  ExchangeBits<1, 0x55555555>(words[2], words[3]);
  ExchangeBits<2, 0x33333333>(words[0], words[2]);
  ExchangeBits<2, 0x33333333>(words[1], words[3]);
}

}  // namespace longhaul::codec::cuda
