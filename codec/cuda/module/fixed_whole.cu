// The kernels of fixed for the usual tensors: a thread has a whole tile.
//
// A tile's codes do not depend on the sample's exponent: its scale is a number of fp16's precision
// times a power of two, whichever that is, and so is every quotient by it. So the codes are written
// while the sample's largest magnitude is found, the scales after it. Where the scale as stored
// would be subnormal, which has fewer bits, that does not hold: then the codes are made anew, one
// by one.
#include "codec/cuda/module/fixed.cuh"
#include "codec/cuda/module/sample_maxima.cuh"
#include "codec/cuda/module/whole_tiles.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr uint32_t kTile = kWholeTile;
constexpr uint32_t kPlaneBytes = kTile / 8;

// The stored scale of a tile whose largest magnitude is `scaled`, after step 0.
__device__ inline uint16_t StoredScale(float scaled, float top) {
  return ToHalf(Divide(scaled, top, __frcp_rn(top)));
}

// Bit b of byte i of word j becomes bit 8 i + j of word b: with code 8 i + j of 32 codes at byte i
// of word j, words become bit planes. Its own inverse.
__device__ inline void TransposeEight(uint32_t (&words)[8]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) ExchangeBits<1, 0x55555555>(words[k], words[k + 1]);
#pragma unroll
  for (int k = 0; k < 8; k += 4) {
    ExchangeBits<2, 0x33333333>(words[k], words[k + 2]);
    ExchangeBits<2, 0x33333333>(words[k + 1], words[k + 3]);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) ExchangeBits<4, 0x0f0f0f0f>(words[k], words[k + 4]);
}

__device__ inline uint32_t ToHalves(float low, float high) {
  uint32_t two;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

// Half a tile, four units of eight numbers, to its words of bit planes, a lane's `to` on, two words
// apart. RN_fp16(fma(x, 2^c / scale, 1024 + offset)) = 1024 + code: the sum's grid of 2^-13 takes
// none but exact middles of two codes for such, as the distance of others is a multiple of 2^-12.
template <bool kWide>
__device__ inline void CodeHalf(const uint4 (&units)[4], float factor, uint32_t bits,
                                uint32_t* to) {
  const float magic = 1024.0f + static_cast<float>(1 << (bits - 1));
  uint32_t words[8];
  uint32_t high[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const auto code = [&](const uint4& unit) {
      const uint32_t two = j / 2 == 0 ? unit.x : j / 2 == 1 ? unit.y : j / 2 == 2 ? unit.z : unit.w;
      return __fmaf_rn(j % 2 == 0 ? LowOf(two) : HighOf(two), factor, magic);
    };
    const uint32_t first = ToHalves(code(units[0]), code(units[1]));
    const uint32_t second = ToHalves(code(units[2]), code(units[3]));
    words[j] = __byte_perm(first, second, 0x6420);
    if constexpr (kWide) {
      const uint32_t above = __byte_perm(first, second, 0x7531);
      high[0] |= (above & 0x01010101) << j;
      high[1] |= (above >> 1 & 0x01010101) << j;
    }
  }
  TransposeEight(words);
#pragma unroll
  for (uint32_t plane = 0; plane < 8; ++plane) {
    if (plane < bits) to[2 * plane] = words[plane];
  }
  if constexpr (kWide) {
    to[16] = high[0];
    if (bits == 10) to[18] = high[1];
  }
}

// What brings the codes of a tile with this largest magnitude, as its bits in bf16, into range; 0
// for tiles whose codes are those of zeros.
__device__ inline float CodeFactor(uint32_t largest, float top) {
  const uint32_t magnitude = largest << 16;
  if (magnitude == 0 || magnitude >= kF32Infinity) return 0;
  const ScaleUp scale_up(kFixedTopExponent - FloorLog2(magnitude));
  const float scale = FromHalf(StoredScale(scale_up(__uint_as_float(magnitude)), top));
  // Overflows for what is too small; such tiles are coded anew.
  return __frcp_rn(scale) * scale_up.first;
}

// What a warp of the encoder has in shared memory: the tiles that it works on next, and the codes
// of those that it works on, in the order of the blob.
struct EncoderShared {
  uint4 tiles[kWarp * kTileUnits];
  uint2 codes[kWarp * 10];
};

template <bool kWide>
__global__ void __launch_bounds__(kThreads, 4)
    EncodeWholeKernel(const __grid_constant__ FixedArgs args, const __grid_constant__ Runs runs) {
  extern __shared__ uint4 shared[];
  EncoderShared& mine = reinterpret_cast<EncoderShared*>(shared)[threadIdx.x / kWarp];
  const FixedScratch scratch(args.tensor.samples, runs.all);
  const SampleMaxima maxima(args.scratch_dev + scratch.maxima);
  auto* const tile_maxima = reinterpret_cast<uint16_t*>(args.scratch_dev + scratch.tile_maxima);
  const uint32_t lane = threadIdx.x % kWarp;
  const WarpTiles tiles(mine.tiles);
  const auto top = static_cast<float>((1 << (args.bits - 1)) - 1);
  const uint32_t warps = gridDim.x * (kThreads / kWarp);
  const auto load = [&](uint32_t k) {
    if (k < runs.all) {
      const Run run(runs, k);
      tiles.Load(args.tensor.data_dev, run.tensor_tile, run.count);
    }
    WarpTiles::Commit();
  };
  // Runs that follow each other are of different blocks.
  uint32_t k = threadIdx.x / kWarp * gridDim.x + blockIdx.x;
  load(k);
  AwaitKernelBefore();
  for (; k < runs.all; k += warps) {
    const Run run(runs, k);
    WarpTiles::Await<0>();
    uint32_t largest = 0;
    uint4 units[kTileUnits];
#pragma unroll
    for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
      const uint4 eight = tiles.Unit(unit);
      units[unit] = eight;
      largest = __vmaxu2(largest, eight.x & 0x7fff7fff);
      largest = __vmaxu2(largest, eight.y & 0x7fff7fff);
      largest = __vmaxu2(largest, eight.z & 0x7fff7fff);
      largest = __vmaxu2(largest, eight.w & 0x7fff7fff);
    }
    largest = max(largest >> 16, largest & 0xffff);
    __syncwarp();
    load(k + warps);
    const bool there = lane < run.count;
    if (there) tile_maxima[run.tensor_tile + lane] = static_cast<uint16_t>(largest);
    const uint32_t finite = there && largest < kF32Infinity >> 16 ? largest << 16 : 0;
    const uint32_t of_run = __reduce_max_sync(kAllLanes, finite);
    if (lane == 0 && of_run != 0) maxima.Raise(run.sample, blockIdx.x, of_run);
    const float factor = CodeFactor(largest, top);
    if (factor == 0) {
#pragma unroll
      for (uint4& unit : units) unit = make_uint4(0, 0, 0, 0);
    }
    auto* const codes = reinterpret_cast<uint32_t*>(mine.codes) + lane * 2 * args.bits;
    CodeHalf<kWide>({units[0], units[1], units[2], units[3]}, factor, args.bits, codes);
    CodeHalf<kWide>({units[4], units[5], units[6], units[7]}, factor, args.bits, codes + 1);
    __syncwarp();
    auto* const to = reinterpret_cast<uint2*>(args.blob_dev + kHeaderBytes + args.codes +
                                              run.tensor_tile * (args.bits * kPlaneBytes));
    for (uint32_t plane = lane; plane < run.count * args.bits; plane += kWarp) {
      to[plane] = mine.codes[plane];
    }
  }
  LetNextKernelBegin();
}

// A tile's codes by the scale as stored.
__device__ __noinline__ void CodeAnew(const FixedArgs& args, uint64_t tile, const ScaleUp& scale_up,
                                      float scale) {
  const auto* const x = static_cast<const uint16_t*>(args.tensor.data_dev) + tile * kTile;
  unsigned char* const planes =
      args.blob_dev + kHeaderBytes + args.codes + tile * (args.bits * kPlaneBytes);
  const int top = (1 << (args.bits - 1)) - 1;
  const auto limit = static_cast<float>(top);
  for (uint32_t byte = 0; byte < kPlaneBytes; ++byte) {
    uint64_t low = 0;  // a byte for each of planes 0 to 7
    uint32_t high = 0;
    for (uint32_t k = 0; k < 8; ++k) {
      const float u = scale > 0 ? scale_up(Bf16ToF32(x[8 * byte + k])) / scale : 0.0f;
      const auto code =
          static_cast<uint32_t>(__float2int_rn(fminf(fmaxf(u, -limit), limit)) + top + 1);
      for (uint32_t plane = 0; plane < 8; ++plane) {
        low |= uint64_t{code >> plane & 1} << (8 * plane + k);
      }
      high |= (code >> 8 & 1) << k | (code >> 9 & 1) << (8 + k);
    }
    for (uint32_t plane = 0; plane < args.bits; ++plane) {
      planes[plane * kPlaneBytes + byte] = static_cast<unsigned char>(
          plane < 8 ? low >> 8 * plane : uint64_t{high >> 8 * (plane - 8)});
    }
  }
}

// Tiles of a sample that a thread finishes.
constexpr uint32_t kFinished = 4;

// Scales and exponents; `parts`: blocks of a sample.
__global__ void __launch_bounds__(kThreads)
    FinishKernel(const __grid_constant__ FixedArgs args, const __grid_constant__ Runs runs,
                 uint32_t parts) {
  AwaitKernelBefore();
  const uint32_t sample = blockIdx.x / parts;
  const uint32_t first = (blockIdx.x - sample * parts) * (kFinished * kThreads) + threadIdx.x;
  const uint64_t first_tile = sample * runs.sample_tiles + first;
  const auto left = static_cast<uint32_t>(
      first < runs.sample_tiles ? min(runs.sample_tiles - first, uint64_t{kFinished * kThreads})
                                : 0);
  const FixedScratch scratch(args.tensor.samples, 0);
  const auto* const tile_maxima =
      reinterpret_cast<const uint16_t*>(args.scratch_dev + scratch.tile_maxima) + first_tile;
  uint32_t magnitudes[kFinished];
#pragma unroll
  for (uint32_t k = 0; k < kFinished; ++k) {
    magnitudes[k] = k * kThreads < left ? uint32_t{tile_maxima[k * kThreads]} << 16 : 0;
  }
  const SampleMaxima maxima(args.scratch_dev + scratch.maxima);
  const int exponent = SampleExponent(maxima.Of(sample), kFixedTopExponent);
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  if (first == 0) reinterpret_cast<int16_t*>(payload)[sample] = static_cast<int16_t>(exponent);
  const auto top = static_cast<float>((1 << (args.bits - 1)) - 1);
  const ScaleUp scale_up(exponent);
  auto* const scales = reinterpret_cast<uint16_t*>(payload + args.scales) + first_tile;
  int nonfinite_tiles = 0;
#pragma unroll
  for (uint32_t k = 0; k < kFinished; ++k) {
    const uint32_t magnitude = magnitudes[k];
    const bool nonfinite = magnitude >= kF32Infinity;
    nonfinite_tiles += nonfinite ? 1 : 0;
    const uint16_t stored =
        nonfinite ? kF16Nan : StoredScale(scale_up(__uint_as_float(magnitude)), top);
    if (k * kThreads < left) scales[k * kThreads] = stored;
    constexpr uint16_t kLeastNormal = 0x0400;
    // What is below 2^-100 is not coded by EncodeWholeKernel either.
    if (magnitude != 0 && (stored <= kLeastNormal || magnitude < __float_as_uint(0x1p-100f))) {
      CodeAnew(args, first_tile + k * kThreads, scale_up, FromHalf(stored));
    }
  }
  if (nonfinite_tiles != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(nonfinite_tiles));
  }
}

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

// Kernel in which warps go through the runs; `next`: as LaunchNext does.
template <class Kernel>
int QueueForRuns(const FixedArgs& args, const Runs& runs, cudaStream_t stream, Kernel kernel,
                 size_t shared_bytes, bool next) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes)) != cudaSuccess) {
    return Launched();
  }
  unsigned blocks = 1;
  if (const int error = ResidentBlocks(reinterpret_cast<const void*>(kernel),
                                       (runs.all + kThreads / kWarp - 1) / (kThreads / kWarp),
                                       &blocks, shared_bytes);
      error != 0) {
    return error;
  }
  const LaunchShape shape{blocks, kThreads, shared_bytes};
  if (next) return LaunchNext(kernel, shape, stream, args, runs);
  kernel<<<shape.blocks, shape.threads, shape.shared_bytes, stream>>>(args, runs);
  return Launched();
}

}  // namespace

int EncodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream) {
  const Runs runs = MakeRuns(args.tensor.samples, SampleTiles(args));
  if (const int error = BeginFixedEncoder(args, FixedScratch(args.tensor.samples, 0), stream);
      error != 0) {
    return error;
  }
  if (const int error = QueueForRuns(
          args, runs, stream, args.bits > 8 ? EncodeWholeKernel<true> : EncodeWholeKernel<false>,
          kThreads / kWarp * sizeof(EncoderShared), true);
      error != 0) {
    return error;
  }
  const auto parts = static_cast<uint32_t>((runs.sample_tiles - 1) / (kFinished * kThreads) + 1);
  return LaunchNext(FinishKernel, {args.tensor.samples * parts, kThreads, 0}, stream, args, runs,
                    parts);
}

int DecodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream) {
  return QueueForRuns(args, MakeRuns(args.tensor.samples, SampleTiles(args)), stream,
                      args.bits > 8 ? DecodeWholeKernel<true> : DecodeWholeKernel<false>, 0, false);
}

}  // namespace longhaul::codec::cuda
