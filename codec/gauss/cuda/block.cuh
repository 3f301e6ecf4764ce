// Shared by the encoder and the decoder of gauss (format.h). A warp handles 1024 elements, 32 in
// each lane. A block has 32 L elements and belongs to L neighbouring lanes, L = 2 to 16. A lane has
// two runs of 16 consecutive elements, one in each half of its block. So the butterflies of
// distances 1 to 8 and of the largest distance stay within a lane.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/lane_pairs.cuh"
#include "codec/gauss/arithmetic.h"
#include "codec/gauss/cuda/kernels.h"
#include "codec/gauss/format.h"

namespace longhaul::codec::cuda {

inline constexpr int kRun = 16;               // elements of a run
inline constexpr int kRuns = 2;               // runs of a lane
inline constexpr int kOfLane = kRuns * kRun;  // elements of a lane
inline constexpr uint32_t kMostLanes = gauss::kMaxBlock / kOfLane;
inline constexpr uint32_t kGaussThreads = 128;
inline constexpr uint32_t kWarps = kGaussThreads / kWarp;

// The signs of arithmetic.h as sign bits of 16-bit numbers, two in each word.
struct PairSigns {
  constexpr PairSigns() {
    for (uint32_t k = 0; k < gauss::kMaxBlock; ++k) {
      const uint32_t sign = gauss::kSigns[k / 32] >> k % 32 & 1;
      words[k / 2] |= sign << (k % 2 == 0 ? 15 : 31);
    }
  }
  alignas(16) uint32_t words[gauss::kMaxBlock / 2] = {};
};
__device__ constexpr PairSigns kPairSigns;

// The blocks of a warp, the block of the calling lane, and the lane's place in the block.
struct GaussPlace {
  uint32_t size;    // elements of a block
  uint32_t lanes;   // L
  uint32_t lane;    // number of the lane among the L lanes
  uint32_t blocks;  // number of blocks that the warp has
  bool there;       // the lane has a block
  uint32_t token;   // number of the token in the tensor
  uint32_t block;   // number of the block in the token
  uint64_t offset;  // index of the block's first element in the tensor
  uint32_t count;   // elements of the block that are not padding; 0 if not `there`
  uint64_t planes;  // offset of the block's codes in the payload
};

// The thread blocks of a grid. The first `whole` ones handle blocks of full size, the others up to
// `all` handle the shorter last blocks of tokens.
struct GaussGrid {
  explicit GaussGrid(const GaussArgs& args)
      : whole(ThreadBlocks(args.whole_blocks, args.block)),
        all(whole + ThreadBlocks(args.last_blocks, args.last_block)) {}
  static uint32_t ThreadBlocks(uint64_t blocks, uint32_t size) {
    constexpr uint64_t kElements = uint64_t{kGaussThreads} * kOfLane;
    return static_cast<uint32_t>((blocks * size + kElements - 1) / kElements);
  }
  uint32_t whole, all;
};

// `whole_grid`: GaussGrid::whole.
__device__ inline GaussPlace PlaceOfLane(const GaussArgs& args, uint32_t whole_grid) {
  const bool whole = blockIdx.x < whole_grid;
  const uint32_t cta = whole ? blockIdx.x : blockIdx.x - whole_grid;
  const uint32_t thread = threadIdx.x % kWarp;
  GaussPlace place;
  place.size = whole ? args.block : args.last_block;
  place.lanes = place.size / kOfLane;
  place.lane = thread & (place.lanes - 1);
  const uint32_t log2_lanes = __ffs(static_cast<int>(place.lanes)) - 1;
  const uint32_t of_warp = kWarp >> log2_lanes;
  const uint64_t first = (uint64_t{cta} * kWarps + threadIdx.x / kWarp) * of_warp;
  const uint64_t all = whole ? args.whole_blocks : args.last_blocks;
  place.blocks = first < all ? static_cast<uint32_t>(min(all - first, uint64_t{of_warp})) : 0;
  const uint32_t of_lane = thread >> log2_lanes;
  place.there = of_lane < place.blocks;
  const uint32_t index = place.there ? static_cast<uint32_t>(first) + of_lane : 0;
  place.token = whole ? index / args.whole_of_token : index;
  place.block =
      whole ? index - place.token * args.whole_of_token.value : args.blocks_of_token.value - 1;
  const uint32_t channel = place.block * args.block;
  place.offset = uint64_t{place.token} * args.tensor.channels + channel;
  place.count = place.there ? min(args.tensor.channels - channel, place.size) : 0;
  place.planes = args.codes + uint64_t{place.token} * args.token_bytes +
                 place.block * (args.bits * args.block / 8);
  return place;
}

// Returns the index in the block of the first element of a run of the lane.
__device__ inline uint32_t RunBegin(const GaussPlace& place, int run) {
  return (run * place.lanes + place.lane) * kRun;
}

__device__ inline void ToArray(const uint4& four, uint32_t* words) {
  words[0] = four.x;
  words[1] = four.y;
  words[2] = four.z;
  words[3] = four.w;
}

// Loads the signs of 16 elements from `element` on, a multiple of 16, to 8 words (PairSigns).
__device__ inline void LoadSigns(uint32_t element, uint32_t* signs) {
  const auto* const from = reinterpret_cast<const uint4*>(kPairSigns.words + element / 2);
  ToArray(__ldg(from), signs);
  ToArray(__ldg(from + 1), signs + 4);
}

// Changes the sign if `sign_bit` is 1 << 31; keeps it if `sign_bit` is 0.
__device__ inline float Signed(float value, uint32_t sign_bit) {
  return __uint_as_float(__float_as_uint(value) ^ sign_bit);
}

// Step 3 of format.h for the lane's block, in place. `lanes`: L. All lanes of a warp must call it.
__device__ inline void TransformBlock(uint32_t lanes, float (&values)[kOfLane]) {
  PairsInLane<1>(values);
  PairsInLane<2>(values);
  PairsInLane<4>(values);
  PairsInLane<8>(values);
#pragma unroll
  for (uint32_t distance = 1; distance < kMostLanes; distance *= 2) {
    if (distance < lanes) {
      const float sign = (threadIdx.x & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (float& value : values) {
        // The product is exact: this is a sum or a difference, rounded once.
        value = __fmaf_rn(value, sign, __shfl_xor_sync(kAllLanes, value, distance));
      }
    }
  }
  PairsInLane<kRun>(values);
}

}  // namespace longhaul::codec::cuda
