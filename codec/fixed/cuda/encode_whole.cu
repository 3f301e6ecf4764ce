// The encoder of fixed for the usual tensors: a thread has a whole tile.
//
// A tile's codes do not depend on the sample's exponent: its scale is a number of fp16's precision
// times a power of two, whichever that is, and so is every quotient by it. So the codes are written
// while the sample's largest magnitude is found, the scales after it. Where the scale as stored
// would be subnormal, which has fewer bits, that does not hold: then the codes are made anew, one
// by one.
#include "codec/cuda/module/sample_maxima.cuh"
#include "codec/fixed/cuda/whole.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr uint32_t kTile = kWholeTile;

// The stored scale of a tile whose largest magnitude is `scaled`, after step 0.
template <bool kStochastic>
__device__ inline uint16_t StoredScale(float scaled, float top) {
  const float exact = Divide(scaled, top, __frcp_rn(top));
  return kStochastic ? ToHalfUp(exact) : ToHalf(exact);
}

__device__ inline uint32_t WordOf(const uint4& unit, uint32_t word) {
  return word == 0 ? unit.x : word == 1 ? unit.y : word == 2 ? unit.z : unit.w;
}

// A lane's tile, in registers: constant places alone.
template <uint32_t kDtype>
class LaneTile {
 public:
  static constexpr bool kWide = kDtype == kF32;
  static constexpr uint32_t kUnits = kWide ? kTileUnitsOfF32 : kTileUnits;

  __device__ explicit LaneTile(const TilesOf<kUnits>& tiles) {
#pragma unroll
    for (uint32_t unit = 0; unit < kUnits; ++unit) units_[unit] = tiles.Unit(unit);
  }

  // Bits of the largest magnitude; at least kF32Infinity: an element is not finite.
  __device__ uint32_t Largest() const {
    uint32_t largest = 0;
#pragma unroll
    for (const uint4& unit : units_) {
#pragma unroll
      for (uint32_t word = 0; word < 4; ++word) {
        if constexpr (kWide) {
          largest = max(largest, WordOf(unit, word) & 0x7fffffff);
        } else {
          largest = __vmaxu2(largest, WordOf(unit, word) & 0x7fff7fff);
        }
      }
    }
    return kWide ? largest : max(largest & 0xffff0000, largest << 16);
  }
  __device__ float At(uint32_t k) const {
    if constexpr (kWide) return __uint_as_float(WordOf(units_[k / 4], k % 4));
    const uint32_t two = WordOf(units_[k / 8], k % 8 / 2);
    return k % 2 == 0 ? LowOf(two) : HighOf(two);
  }
  __device__ void Clear() {
#pragma unroll
    for (uint4& unit : units_) unit = make_uint4(0, 0, 0, 0);
  }

 private:
  uint4 units_[kUnits];
};

// The 32 codes of half a tile. Byte i of words[j] is the lower byte of the code of element 8 i + j;
// bit 8 i + j of high[b] is bit 8 + b of that code.
struct HalfCodes {
  uint32_t words[8];
  uint32_t high[2] = {0, 0};

  // Takes word j out of the codes of four elements, each alone or two in the halves of a word.
  __device__ void SetWide(uint32_t j, uint32_t first, uint32_t second) {
    words[j] = __byte_perm(first, second, 0x6420);
    const uint32_t above = __byte_perm(first, second, 0x7531);
    high[0] |= (above & 0x01010101) << j;
    high[1] |= (above >> 1 & 0x01010101) << j;
  }
};

__device__ inline uint32_t ToHalves(float low, float high) {
  uint32_t two;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

// Rounds to nearest. RN_fp16(fma(x, 2^c / scale, 1024 + offset)) = 1024 + code: the sum's grid of
// 2^-13 takes none but exact middles of two codes for such, as the distance of others is a multiple
// of 2^-12.
template <uint32_t kMostBits>
struct ToNearest {
  __device__ ToNearest(const FixedArgs& args, uint64_t /*tile*/)
      : magic_(1024.0f + static_cast<float>(1 << (args.bits - 1))) {}
  // For kF32Infinity and more the factor is 0, and so it is where codes are those of zeros.
  static __device__ float FactorOf(const FixedArgs& /*args*/, float scale) {
    return __frcp_rn(scale);
  }

  __device__ void Code(const LaneTile<kBf16>& tile, uint32_t half, float factor,
                       HalfCodes* codes) const {
    const auto code = [&](uint32_t k) { return __fmaf_rn(tile.At(32 * half + k), factor, magic_); };
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
      const uint32_t first = ToHalves(code(j), code(8 + j));
      const uint32_t second = ToHalves(code(16 + j), code(24 + j));
      if constexpr (kMostBits > 8) {
        codes->SetWide(j, first, second);
      } else {
        codes->words[j] = __byte_perm(first, second, 0x6420);
      }
    }
  }

 private:
  float magic_;
};

// Rounds stochastically, as AtRandom, which kernels for single elements use.
template <uint32_t kMostBits>
struct ToRandom {
  __device__ ToRandom(const FixedArgs& args, uint64_t tile)
      : noise_(args.noise),
        first_eight_(static_cast<uint32_t>(tile) * (kTile / 8)),
        fraction_(kFits ? 16 : fixed::FractionBits(args.bits)),
        origin_(fixed::RandomOrigin(args.bits)),
        limit_(static_cast<float>((1 << (args.bits - 1)) - 1) * Pow2(static_cast<int>(fraction_))) {
  }
  static __device__ float FactorOf(const FixedArgs& args, float scale) {
    const uint32_t fraction = kFits ? 16 : fixed::FractionBits(args.bits);
    return __frcp_rn(scale) * Pow2(static_cast<int>(fraction));
  }

  template <class Tile>
  __device__ void Code(const Tile& tile, uint32_t half, float factor, HalfCodes* codes) const {
    // Two eights of elements at a time: of the noise of all four there are too many registers.
#pragma unroll
    for (uint32_t eight = 0; eight < 4; eight += 2) {
      const Philox::Counter first = EightNoises(noise_, first_eight_ + 4 * half + eight);
      const Philox::Counter second = EightNoises(noise_, first_eight_ + 4 * half + eight + 1);
#pragma unroll
      for (uint32_t j = 0; j < 8; ++j) {
        const uint32_t k = 32 * half + 8 * eight + j;
        const uint32_t low = Sum(tile.At(k), factor, first[j / 2], j);
        const uint32_t high = Sum(tile.At(k + 8), factor, second[j / 2], j);
        uint32_t& word = codes->words[j];
        if constexpr (kFits) {
          // The codes are at the sums' third bytes.
          const uint32_t two = __byte_perm(low, high, 0x0062);
          word = eight == 0 ? two : __byte_perm(word, two, 0x5410);
        } else {
          const uint32_t two = __byte_perm((low & fixed::kMantissa) >> fraction_,
                                           (high & fixed::kMantissa) >> fraction_, 0x5410);
          if (eight == 0) {
            word = two;
          } else {
            codes->SetWide(j, word, two);
          }
        }
      }
    }
  }

 private:
  // 16 bits behind the point: the code is a byte of its own.
  static constexpr bool kFits = kMostBits <= 7;

  // The float whose mantissa is the code and its fraction, for element j of eight.
  __device__ uint32_t Sum(float x, float factor, uint32_t noises, uint32_t j) const {
    float w = __fmul_rn(x, factor);
    // Up to six bits, no product is half an integer or more above the largest.
    if constexpr (kMostBits > 4) w = fminf(fmaxf(w, -limit_), limit_);
    uint32_t origin = 0;
    if constexpr (kFits) {
      origin = __byte_perm(noises, origin_, j % 2 == 0 ? 0x7610 : 0x7632);
    } else {
      origin = origin_ + ((noises >> j % 2 * 16 & 0xffff) >> (16 - fraction_));
    }
    return __float_as_uint(__fadd_rn(w, __uint_as_float(origin)));
  }

  const uint32_t* const noise_;
  const uint32_t first_eight_;
  const uint32_t fraction_, origin_;
  const float limit_;
};

template <bool kStochastic, uint32_t kMostBits>
struct RoundingOf {
  using Type = ToNearest<kMostBits>;
};
template <uint32_t kMostBits>
struct RoundingOf<true, kMostBits> {
  using Type = ToRandom<kMostBits>;
};

// To words of bit planes, from `to` on, two apart.
template <uint32_t kMostBits>
__device__ inline void StorePlanes(HalfCodes* codes, uint32_t bits, uint32_t* to) {
  uint32_t(&words)[8] = codes->words;
  if constexpr (kMostBits <= 4) {
    uint32_t nibbles[4];
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) nibbles[j] = words[j] | words[j + 4] << 4;
    TransposeFour(nibbles);
#pragma unroll
    for (uint32_t plane = 0; plane < 4; ++plane) {
      if (plane < bits) to[2 * plane] = nibbles[plane];
    }
    return;
  }
  TransposeEight(words);
#pragma unroll
  for (uint32_t plane = 0; plane < 8; ++plane) {
    if (plane < bits) to[2 * plane] = words[plane];
  }
  if constexpr (kMostBits > 8) {
    if (bits > 8) to[16] = codes->high[0];
    if (bits > 9) to[18] = codes->high[1];
  }
}

// What brings the codes of a tile with this largest magnitude into range; 0 for tiles whose codes
// are those of zeros.
template <bool kStochastic, class Rounding>
__device__ inline float CodeFactor(const FixedArgs& args, uint32_t magnitude, float top) {
  if (magnitude == 0 || magnitude >= kF32Infinity) return 0;
  const ScaleUp scale_up(kFixedTopExponent - FloorLog2(magnitude));
  const float scale = FromHalf(StoredScale<kStochastic>(scale_up(__uint_as_float(magnitude)), top));
  // Overflows for what is too small; such tiles are coded anew.
  return Rounding::FactorOf(args, scale) * scale_up.first;
}

// What a warp of the encoder has in shared memory: the tiles that it works on next, and the codes
// of those that it works on, in the order of the blob.
template <uint32_t kUnits, uint32_t kMostBits>
struct EncoderShared {
  uint4 tiles[kWarp * kUnits];
  uint2 codes[kWarp * kMostBits];
};
template <uint32_t kDtype, uint32_t kMostBits>
using SharedOf = EncoderShared<LaneTile<kDtype>::kUnits, kMostBits>;

// Where a tile's largest magnitude is kept until its scale is known.
template <uint32_t kDtype>
struct KeptMagnitude {
  using Type = uint16_t;
  static constexpr int kShift = 16;
};
template <>
struct KeptMagnitude<kF32> {
  using Type = uint32_t;
  static constexpr int kShift = 0;
};

// An fp32 tile takes 64 registers.
template <uint32_t kDtype>
inline constexpr int kBlocksAtOnce = kDtype == kF32 ? 2 : 4;

template <uint32_t kDtype, bool kStochastic, uint32_t kMostBits>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kDtype>)
    EncodeWholeKernel(const __grid_constant__ FixedArgs args, const __grid_constant__ Runs runs) {
  using Rounding = typename RoundingOf<kStochastic, kMostBits>::Type;
  using Magnitude = KeptMagnitude<kDtype>;
  extern __shared__ uint4 shared[];
  auto& mine = reinterpret_cast<SharedOf<kDtype, kMostBits>*>(shared)[threadIdx.x / kWarp];
  const FixedScratch scratch(args.tensor.samples, runs.all);
  const SampleMaxima maxima(args.scratch_dev + scratch.maxima);
  auto* const tile_maxima =
      reinterpret_cast<typename Magnitude::Type*>(args.scratch_dev + scratch.tile_maxima);
  const uint32_t lane = threadIdx.x % kWarp;
  const TilesOf<LaneTile<kDtype>::kUnits> tiles(mine.tiles);
  const auto top = static_cast<float>((1 << (args.bits - 1)) - 1);
  const uint32_t warps = gridDim.x * (kThreads / kWarp);
  const auto load = [&](uint32_t k) {
    if (k < runs.all) {
      const Run run(runs, k);
      tiles.Load(args.tensor.data_dev, run.tensor_tile, run.count);
    }
    tiles.Commit();
  };
  // Runs that follow each other are of different blocks.
  uint32_t k = threadIdx.x / kWarp * gridDim.x + blockIdx.x;
  load(k);
  AwaitKernelBefore();
  for (; k < runs.all; k += warps) {
    const Run run(runs, k);
    tiles.template Await<0>();
    LaneTile<kDtype> tile(tiles);
    const uint32_t largest = tile.Largest();
    __syncwarp();
    load(k + warps);
    const bool there = lane < run.count;
    if (there) {
      tile_maxima[run.tensor_tile + lane] =
          static_cast<typename Magnitude::Type>(largest >> Magnitude::kShift);
    }
    const uint32_t finite = there && largest < kF32Infinity ? largest : 0;
    const uint32_t of_run = __reduce_max_sync(kAllLanes, finite);
    if (lane == 0 && of_run != 0) maxima.Raise(run.sample, blockIdx.x, of_run);
    const float factor = CodeFactor<kStochastic, Rounding>(args, largest, top);
    if (factor == 0) tile.Clear();
    const Rounding rounding(args, run.tensor_tile + lane);
    auto* const to_words = reinterpret_cast<uint32_t*>(mine.codes) + lane * 2 * args.bits;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      HalfCodes codes;
      rounding.Code(tile, half, factor, &codes);
      StorePlanes<kMostBits>(&codes, args.bits, to_words + half);
    }
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
template <uint32_t kDtype, bool kStochastic>
__device__ __noinline__ void CodeAnew(const FixedArgs& args, uint64_t tile, const ScaleUp& scale_up,
                                      float scale) {
  unsigned char* const planes =
      args.blob_dev + kHeaderBytes + args.codes + tile * (args.bits * kPlaneBytes);
  const int top = (1 << (args.bits - 1)) - 1;
  const auto limit = static_cast<float>(top);
  const AtRandom at_random(args.bits);
  const float factor = at_random.Factor(scale);
  for (uint32_t byte = 0; byte < kPlaneBytes; ++byte) {
    Philox::Counter noises{};
    if (kStochastic) noises = EightNoises(args.noise, tile * kPlaneBytes + byte);
    uint64_t low = 0;  // a byte for each of planes 0 to 7
    uint32_t high = 0;
#pragma unroll
    for (uint32_t k = 0; k < 8; ++k) {
      const float x =
          scale_up(LoadElement(args.tensor.data_dev, kDtype, tile * kTile + 8 * byte + k));
      uint32_t code = 0;
      if constexpr (kStochastic) {
        code = at_random.Code(__fmul_rn(x, factor), NoiseOf(noises, k));
      } else {
        const float u = scale > 0 ? x / scale : 0.0f;
        code = static_cast<uint32_t>(__float2int_rn(fminf(fmaxf(u, -limit), limit)) + top + 1);
      }
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
template <uint32_t kDtype, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    FinishKernel(const __grid_constant__ FixedArgs args, const __grid_constant__ Runs runs,
                 uint32_t parts) {
  using Magnitude = KeptMagnitude<kDtype>;
  AwaitKernelBefore();
  const uint32_t sample = blockIdx.x / parts;
  const uint32_t first = (blockIdx.x - sample * parts) * (kFinished * kThreads) + threadIdx.x;
  const uint64_t first_tile = sample * runs.sample_tiles + first;
  const auto left = static_cast<uint32_t>(
      first < runs.sample_tiles ? min(runs.sample_tiles - first, uint64_t{kFinished * kThreads})
                                : 0);
  const FixedScratch scratch(args.tensor.samples, 0);
  const auto* const tile_maxima =
      reinterpret_cast<const typename Magnitude::Type*>(args.scratch_dev + scratch.tile_maxima) +
      first_tile;
  uint32_t magnitudes[kFinished];
#pragma unroll
  for (uint32_t k = 0; k < kFinished; ++k) {
    magnitudes[k] =
        k * kThreads < left ? uint32_t{tile_maxima[k * kThreads]} << Magnitude::kShift : 0;
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
        nonfinite ? kF16Nan : StoredScale<kStochastic>(scale_up(__uint_as_float(magnitude)), top);
    if (k * kThreads < left) scales[k * kThreads] = stored;
    constexpr uint16_t kLeastNormal = 0x0400;
    // What is below 2^-100 is not coded by EncodeWholeKernel either.
    if (magnitude != 0 && (stored <= kLeastNormal || magnitude < __float_as_uint(0x1p-100f))) {
      CodeAnew<kDtype, kStochastic>(args, first_tile + k * kThreads, scale_up, FromHalf(stored));
    }
  }
  if (nonfinite_tiles != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(nonfinite_tiles));
  }
}

template <uint32_t kDtype, bool kStochastic, uint32_t kMostBits>
int EncodeRuns(const FixedArgs& args, const Runs& runs, cudaStream_t stream) {
  return QueueForRuns(args, runs, stream, EncodeWholeKernel<kDtype, kStochastic, kMostBits>,
                      kThreads / kWarp * sizeof(SharedOf<kDtype, kMostBits>), true);
}

template <uint32_t kDtype, bool kStochastic>
int Encode(const FixedArgs& args, cudaStream_t stream) {
  const Runs runs = MakeRuns(args.tensor.samples, SampleTiles(args));
  if (const int error = BeginFixedEncoder(args, FixedScratch(args.tensor.samples, 0), stream);
      error != 0) {
    return error;
  }
  int error = 0;
  if constexpr (kStochastic) {
    error = args.bits <= 4   ? EncodeRuns<kDtype, true, 4>(args, runs, stream)
            : args.bits <= 7 ? EncodeRuns<kDtype, true, 7>(args, runs, stream)
                             : EncodeRuns<kDtype, true, 10>(args, runs, stream);
  } else {
    error = args.bits <= 8 ? EncodeRuns<kDtype, false, 8>(args, runs, stream)
                           : EncodeRuns<kDtype, false, 10>(args, runs, stream);
  }
  if (error != 0) return error;
  const auto parts = static_cast<uint32_t>((runs.sample_tiles - 1) / (kFinished * kThreads) + 1);
  return LaunchNext(FinishKernel<kDtype, kStochastic>, {args.tensor.samples * parts, kThreads, 0},
                    stream, args, runs, parts);
}

}  // namespace

int EncodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream) {
  if (args.stochastic == 0) return Encode<kBf16, false>(args, stream);
  return args.tensor.dtype == kF32 ? Encode<kF32, true>(args, stream)
                                   : Encode<kBf16, true>(args, stream);
}

}  // namespace longhaul::codec::cuda
