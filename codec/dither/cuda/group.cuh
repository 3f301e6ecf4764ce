// Code that dither's encoder and decoder share. A thread block works on one group. Each warp
// transforms 1024 elements at a time, as gauss does (codec/gauss/cuda/block.cuh). The first warp
// does the rANS coding: each of its lanes is one lane of the format. Codes are passed through
// shared memory.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/dither/arithmetic.h"
#include "codec/dither/cuda/kernels.h"
#include "codec/gauss/cuda/block.cuh"

namespace longhaul::codec::cuda {

// Few, because most of them wait while the first warp codes: so more groups are at hand at a time.
inline constexpr uint32_t kDitherThreads = 128;
inline constexpr uint32_t kMostDitherLanes = dither::kMaxBlock / kOfLane;
static_assert(dither::kLanes == kWarp && dither::kGroupBlocks == 2 * kWarp);

// The group of a thread block.
struct DitherGroup {
  uint64_t first_index;          // index of the group's first element in the tensor, with padding
  uint32_t first_block, blocks;  // number of the first block in the tensor; blocks of the group
  uint32_t elements;             // of the group, with padding
};

// Returns the index of a block's first element in the tensor, with padding. `block` may be the
// number of blocks; the result is then the number of elements.
__device__ inline uint64_t IndexOf(const DitherArgs& args, uint32_t block) {
  const uint32_t token = block / args.token_blocks;
  return token * args.token_elements +
         uint64_t{block - token * args.token_blocks.value} * args.block;
}
// Returns group number `group` of the tensor.
__device__ inline DitherGroup GroupAt(const DitherArgs& args, uint32_t group) {
  const uint32_t first = group * dither::kGroupBlocks;
  const auto left = static_cast<uint32_t>(min(args.blocks - first, uint64_t{dither::kGroupBlocks}));
  const uint64_t index = IndexOf(args, first);
  return {index, first, left, static_cast<uint32_t>(IndexOf(args, first + left) - index)};
}

// The part of a block on which the calling lane works. block / kOfLane lanes share a block; if it
// is a shorter last block, only the first of them have elements.
struct DitherPlace {
  bool there;      // whether the lane has elements
  uint32_t index;  // of the block in the group
  uint32_t size;   // elements of the block, with padding
  uint32_t lanes;  // number of lanes that have elements of the block
  uint32_t lane;   // number of this lane among them
  uint32_t first;  // index of the block's first element in the group
  TilePlace tile;  // place of the block in the tensor
};

// Returns the place of the calling lane. A warp takes 1024 elements of the group in a turn; `turn`
// is the number of the turn in the group.
__device__ inline DitherPlace PlaceAt(const DitherArgs& args, const DitherGroup& group,
                                      uint32_t turn) {
  const uint32_t thread = threadIdx.x % kWarp;
  const uint32_t of_block = args.block / kOfLane;
  DitherPlace place;
  place.index = turn * (kWarp / of_block) + thread / of_block;
  place.lane = thread % of_block;
  const bool exists = place.index < group.blocks;
  const uint32_t block = group.first_block + (exists ? place.index : 0);
  const uint32_t token = block / args.token_blocks;
  const uint32_t of_token = block - token * args.token_blocks.value;
  place.size = of_token + 1 < args.token_blocks.value ? args.block : args.last_block;
  place.lanes = place.size / kOfLane;
  place.there = exists && place.lane < place.lanes;
  place.first = static_cast<uint32_t>(IndexOf(args, block) - group.first_index);
  place.tile = Place(args.tensor, token, of_token, args.block);
  if (!place.there) place.tile.count = 0;
  return place;
}
// Returns how many turns a group has.
__device__ inline uint32_t Turns(const DitherArgs& args, const DitherGroup& group) {
  const uint32_t of_warp = kWarp * kOfLane / args.block;
  return (group.blocks + of_warp - 1) / of_warp;
}
// Returns the index in the block of the first element of a run of this lane (gauss/cuda/block.cuh).
__device__ inline uint32_t RunBegin(const DitherPlace& place, int run) {
  return (run * place.lanes + place.lane) * kRun;
}

// Applies the signs of gauss to the lane's values.
__device__ inline void ChangeSigns(const DitherPlace& place, float (&values)[kOfLane]) {
  if (!place.there) return;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    uint32_t signs[kRun / 2];
    LoadSigns(RunBegin(place, run), signs);
#pragma unroll
    for (int k = 0; k < kRun / 2; ++k) {
      float* const two = values + run * kRun + 2 * k;
      two[0] = Signed(two[0], signs[k] << 16);
      two[1] = Signed(two[1], signs[k] & 0x80000000);
    }
  }
}

// Transforms the blocks of a warp, which may differ in size, in place. All lanes must call it.
__device__ inline void TransformBlocks(const DitherArgs& args, const DitherPlace& place,
                                       float (&values)[kOfLane]) {
  PairsInLane<1>(values);
  PairsInLane<2>(values);
  PairsInLane<4>(values);
  PairsInLane<8>(values);
#pragma unroll
  for (uint32_t distance = 1; distance < kMostDitherLanes; distance *= 2) {
    if (distance * kOfLane >= args.block) break;
    const float sign = (threadIdx.x & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (float& value : values) {
      const float other = __shfl_xor_sync(kAllLanes, value, distance);
      // The product is exact: this is a sum or a difference, rounded once.
      if (distance < place.lanes) value = __fmaf_rn(value, sign, other);
    }
  }
  PairsInLane<kRun>(values);
}

}  // namespace longhaul::codec::cuda
