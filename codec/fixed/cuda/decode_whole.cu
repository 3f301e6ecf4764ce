// The decoder of fixed for the usual tensors: a thread has a whole tile.
#include "codec/fixed/cuda/whole.cuh"

namespace longhaul::codec::cuda {
namespace {

template <bool kWide>
__global__ void __launch_bounds__(kThreads, 4)
    DecodeWholeKernel(const __grid_constant__ FixedArgs args, const __grid_constant__ Runs runs) {
  __shared__ uint4 shared[kThreads * kTileUnits];
  const uint32_t lane = threadIdx.x % kWarp;
  uint4* const mine = shared + threadIdx.x / kWarp * (kWarp * kTileUnits);
  const WarpTiles tiles(mine);
  const unsigned char* const payload = args.blob_dev + kHeaderBytes;
  // 2^23 and what codes are above the numbers.
  const float origin = 8388608.0f + static_cast<float>(1 << (args.bits - 1));
  const uint32_t warps = gridDim.x * (kThreads / kWarp);
  for (uint32_t k = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp; k < runs.all;
       k += warps) {
    const Run run(runs, k);
    const auto* const from = reinterpret_cast<const uint2*>(
        payload + args.codes + run.tensor_tile * (args.bits * kPlaneBytes));
    auto* const to = reinterpret_cast<uint2*>(mine);
#pragma unroll
    for (uint32_t plane = 0; plane < 10; ++plane) {
      const uint32_t at = plane * kWarp + lane;
      if (plane < args.bits && at < run.count * args.bits) to[at] = from[at];
    }
    const uint16_t stored =
        lane < run.count
            ? reinterpret_cast<const uint16_t*>(payload + args.scales)[run.tensor_tile + lane]
            : uint16_t{0};
    const int exponent = reinterpret_cast<const int16_t*>(payload)[run.sample];
    __syncwarp();
    uint2 planes[10];
#pragma unroll
    for (uint32_t plane = 0; plane < 10; ++plane) {
      planes[plane] = plane < args.bits ? to[lane * args.bits + plane] : make_uint2(0, 0);
    }
    __syncwarp();
    const bool possible = exponent >= kMinExponent && exponent <= kMaxExponent;
    if (!possible && lane == 0) atomicOr(args.fault_dev, 1u);
    const bool finite = possible && (stored & 0x7c00) != 0x7c00;
    const float scale = FromHalf(stored);
    // Products of codes and scales are exact, and so is their scaling back where it leaves no
    // range.
    constexpr int kSimpleExponents = 80;
    const bool simple = exponent <= kSimpleExponents && exponent >= -kSimpleExponents;
    const ScaleBack scale_back(possible ? exponent : 0);
    const float limit = LargestFinite(kBf16);
    const float factor = simple ? scale * Pow2(-exponent) : scale;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t words[8];
#pragma unroll
      for (int plane = 0; plane < 8; ++plane) {
        words[plane] = half == 0 ? planes[plane].x : planes[plane].y;
      }
      TransposeEight(words);
      const uint32_t high[2] = {half == 0 ? planes[8].x : planes[8].y,
                                half == 0 ? planes[9].x : planes[9].y};
#pragma unroll
      for (uint32_t unit = 0; unit < 4; ++unit) {
        uint32_t twos[4];
#pragma unroll
        for (uint32_t pair = 0; pair < 4; ++pair) {
          float values[2];
#pragma unroll
          for (uint32_t odd = 0; odd < 2; ++odd) {
            const uint32_t j = 2 * pair + odd;
            uint32_t bits = __byte_perm(words[j], 0x4b000000, 0x7540 + unit);
            if constexpr (kWide) {
              bits |= (high[0] >> (8 * unit + j) & 1) << 8 | (high[1] >> (8 * unit + j) & 1) << 9;
            }
            values[odd] = (__uint_as_float(bits) - origin) * factor;
            if (!simple) values[odd] = fminf(fmaxf(scale_back(values[odd]), -limit), limit);
          }
          twos[pair] = finite ? ToBf16s(values[0], values[1]) : 0x7fc07fc0;
        }
        *tiles.At(lane, 4 * half + unit) = make_uint4(twos[0], twos[1], twos[2], twos[3]);
      }
    }
    __syncwarp();
    auto* const out = static_cast<uint4*>(args.tensor.data_dev) + run.tensor_tile * kTileUnits;
#pragma unroll
    for (uint32_t unit = lane; unit < kWarp * kTileUnits; unit += kWarp) {
      if (unit / kTileUnits < run.count)
        out[unit] = *tiles.At(unit / kTileUnits, unit % kTileUnits);
    }
    __syncwarp();
  }
}

}  // namespace

int DecodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream) {
  return QueueForRuns(args, MakeRuns(args.tensor.samples, SampleTiles(args)), stream,
                      args.bits > 8 ? DecodeWholeKernel<true> : DecodeWholeKernel<false>, 0, false);
}

}  // namespace longhaul::codec::cuda
