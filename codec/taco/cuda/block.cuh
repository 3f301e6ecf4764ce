// Shared by the kernels of taco (format.h). A warp handles 1024 elements, 32 in each lane. A block
// has 32 L elements and belongs to L neighbouring lanes, L = 1 to 16. A lane has four runs of eight
// consecutive elements, one in each quarter of its block. So the butterflies of distances 1 to 4
// and of the two largest distances stay within a lane, and L lanes load 16 L consecutive bytes of
// 16-bit elements. All 32 lanes of a warp must call each function.
#pragma once

#include <cfloat>

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/lane_pairs.cuh"
#include "codec/taco/arithmetic.h"
#include "codec/taco/cuda/kernels.h"

namespace longhaul::codec::cuda {

inline constexpr int kTacoRun = 8;                        // elements of a run
inline constexpr int kTacoRuns = 4;                       // runs of a lane
inline constexpr int kTacoOfLane = kTacoRuns * kTacoRun;  // elements of a lane
inline constexpr uint32_t kTacoMostLanes = taco::kMaxBlock / kTacoOfLane;
inline constexpr uint32_t kTacoThreads = 128;

using taco::Format;
using TacoValues = float[kTacoOfLane];
// A lane's codes: four in each word, so two words for each run.
using TacoCodes = uint32_t[kTacoOfLane / 4];

// Returns the number of thread blocks of kTacoThreads threads for all blocks.
inline unsigned TacoThreadBlocks(const TacoFlatArgs& args) {
  constexpr uint64_t kElements = uint64_t{kTacoThreads} * kTacoOfLane;
  return static_cast<unsigned>((args.blocks * args.block + kElements - 1) / kElements);
}

// The block of the calling lane, and the lane's place in the block.
struct TacoPlace {
  uint32_t lanes;   // L
  uint32_t lane;    // number of the lane among the L lanes
  uint32_t block;   // number of the block. A lane behind the last block has the last block's number
  bool there;       // false for lanes behind the last block
  uint64_t offset;  // index of the block's first element
  uint32_t count;   // elements of the block that are not padding; 0 if not `there`

  // `known_lanes`: L as a constant, which makes addresses cheaper. 0: L follows from args.block.
  __device__ TacoPlace(const TacoFlatArgs& args, uint32_t known_lanes) {
    lanes = known_lanes != 0 ? known_lanes : args.block / kTacoOfLane;
    const uint32_t size = lanes * kTacoOfLane;
    const uint32_t thread = blockIdx.x * kTacoThreads + threadIdx.x;
    lane = thread & (lanes - 1);
    const uint32_t wanted =
        thread >> (known_lanes != 0 ? Log2(known_lanes) : __ffs(static_cast<int>(lanes)) - 1);
    const uint32_t last = static_cast<uint32_t>(args.blocks) - 1;
    there = wanted <= last;
    block = min(wanted, last);
    offset = uint64_t{block} * size;
    const uint32_t of_last = static_cast<uint32_t>(args.elements - uint64_t{last} * size);
    count = wanted < last ? size : there ? of_last : 0;
  }
  static constexpr uint32_t Log2(uint32_t lanes) {
    uint32_t log2 = 0;
    while (lanes >> log2 > 1) ++log2;
    return log2;
  }
  // Returns the index in the block of the first element of a run of this lane.
  __device__ uint32_t RunBegin(int run) const { return (run * lanes + lane) * kTacoRun; }
  // Returns whether the lane has no padding.
  __device__ bool Whole() const { return RunBegin(kTacoRuns - 1) + kTacoRun <= count; }
};

__device__ inline bool Aligned16(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// Loads the lane's elements as fp32; padding becomes 0.
template <uint32_t kDtype>
__device__ inline void LoadTaco(const void* data, const TacoPlace& place, TacoValues& values) {
  if (!place.Whole() || !Aligned16(data)) {
#pragma unroll
    for (int k = 0; k < kTacoOfLane; ++k) {
      const uint32_t element = place.RunBegin(k / kTacoRun) + k % kTacoRun;
      values[k] = element < place.count ? LoadElement(data, kDtype, place.offset + element) : 0.0f;
    }
    return;
  }
  if constexpr (kDtype == kF32) {
    const float* const from = static_cast<const float*>(data) + place.offset;
#pragma unroll
    for (int k = 0; k < kTacoOfLane; k += 4) {
      const float4 four = __ldcs(
          reinterpret_cast<const float4*>(from + place.RunBegin(k / kTacoRun) + k % kTacoRun));
      values[k] = four.x;
      values[k + 1] = four.y;
      values[k + 2] = four.z;
      values[k + 3] = four.w;
    }
    return;
  }
  const uint16_t* const from = static_cast<const uint16_t*>(data) + place.offset;
  uint4 runs[kTacoRuns];
#pragma unroll
  for (int run = 0; run < kTacoRuns; ++run) {
    runs[run] = __ldcs(reinterpret_cast<const uint4*>(from + place.RunBegin(run)));
  }
#pragma unroll
  for (int run = 0; run < kTacoRuns; ++run) {
    const uint32_t words[4] = {runs[run].x, runs[run].y, runs[run].z, runs[run].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float* const two = &values[run * kTacoRun + 2 * k];
      if constexpr (kDtype == kBf16) {
        two[0] = __uint_as_float(words[k] << 16);
        two[1] = __uint_as_float(words[k] & 0xffff0000);
      } else {
        const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&words[k]));
        two[0] = both.x;
        two[1] = both.y;
      }
    }
  }
}

// Step 1 of format.h, in place. `lanes`: L.
__device__ inline void TransformTaco(uint32_t lanes, TacoValues& values) {
  PairsInLane<1>(values);
  PairsInLane<2>(values);
  PairsInLane<4>(values);
#pragma unroll
  for (uint32_t distance = 1; distance < kTacoMostLanes; distance *= 2) {
    if (distance < lanes) {
      const float sign = (threadIdx.x & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (float& value : values) {
        // The product is exact: this is a sum or a difference, rounded once.
        value = __fmaf_rn(value, sign, __shfl_xor_sync(kAllLanes, value, distance));
      }
    }
  }
  PairsInLane<kTacoRun>(values);
  PairsInLane<2 * kTacoRun>(values);
}

// Returns the larger number; NaN if one is NaN.
__device__ inline float LargerOrNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// Returns M of the lane's block, in all lanes of the block. M is NaN or infinite if an element is
// not finite.
__device__ inline float LargestOfTaco(uint32_t lanes, const TacoValues& values) {
  float largest[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) largest[k] = fabsf(values[k]);
#pragma unroll
  for (int k = 4; k < kTacoOfLane; ++k) {
    largest[k % 4] = LargerOrNan(largest[k % 4], fabsf(values[k]));
  }
  float all = LargerOrNan(LargerOrNan(largest[0], largest[1]), LargerOrNan(largest[2], largest[3]));
#pragma unroll
  for (uint32_t distance = 1; distance < kTacoMostLanes; distance *= 2) {
    if (distance < lanes) {
      all = LargerOrNan(all, __shfl_xor_sync(kAllLanes, all, distance));
    }
  }
  return all;
}

// Returns a word with the codes (ToCode of arithmetic.h) of four numbers; `a` has the lowest byte.
template <Format kFormat>
__device__ inline uint32_t FourCodes(float a, float b, float c, float d) {
  if constexpr (kFormat == Format::kInt8) {
    // No number exceeds 127 by more than a rounding error.
    const uint32_t low =
        __byte_perm(__float_as_uint(a + kRoundMagic), __float_as_uint(b + kRoundMagic), 0x0040);
    const uint32_t high =
        __byte_perm(__float_as_uint(c + kRoundMagic), __float_as_uint(d + kRoundMagic), 0x0040);
    return __byte_perm(low, high, 0x5410);
  } else {
#if __CUDA_ARCH__ >= 890
    uint16_t low = 0, high = 0;
    if constexpr (kFormat == Format::kE4m3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    }
    uint32_t word;
    asm("mov.b32 %0, {%1, %2};" : "=r"(word) : "h"(low), "h"(high));
    return word;
#else
    return taco::ToCode<kFormat>(a) | uint32_t{taco::ToCode<kFormat>(b)} << 8 |
           uint32_t{taco::ToCode<kFormat>(c)} << 16 | uint32_t{taco::ToCode<kFormat>(d)} << 24;
#endif
  }
}

// The inverse of FourCodes. A code that is no finite number becomes an infinity or a NaN.
template <Format kFormat>
__device__ inline void FourNumbers(uint32_t word, float* values) {
  if constexpr (kFormat == Format::kInt8) {
    const uint32_t raised = word ^ 0x80808080;  // 0 to 255
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // 2^23 and the byte.
      values[k] = __uint_as_float(__byte_perm(raised, 0x4b000000, 0x7540 + k)) - 8388736.0f;
    }
  } else {
#if __CUDA_ARCH__ >= 890
    uint16_t halves[2];
    asm("mov.b32 {%0, %1}, %2;" : "=h"(halves[0]), "=h"(halves[1]) : "r"(word));
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t two = 0;
      if constexpr (kFormat == Format::kE4m3) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(halves[k]));
      } else {
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(two) : "h"(halves[k]));
      }
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&two));
      values[2 * k] = both.x;
      values[2 * k + 1] = both.y;
    }
#else
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto code = static_cast<uint8_t>(word >> 8 * k);
      values[k] = taco::IsNumber<kFormat>(code) ? taco::FromCode<kFormat>(code)
                                                : __uint_as_float(taco::kNanBits);
    }
#endif
  }
}

// A block's c, and whether the block has a NaN or an infinity.
struct TacoScale {
  float c;
  bool nonfinite;
};

// Steps 1 to 6 of format.h. load(values) loads the lane's elements; the second pass, for sums that
// overflow, calls it again. Returns the scale of the lane's block in each of the block's lanes.
template <Format kFormat, class Load>
__device__ inline TacoScale EncodeTacoBlock(const TacoFlatArgs& args, const TacoPlace& place,
                                            const Load& load, TacoCodes& codes) {
  TacoValues values;
  float largest = 0;
  bool lowered = false;
  // A loop, so that the compiler makes the code of a pass only once.
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    load(values);
    if (pass > 0) {
      const float factor = lowered ? taco::kLowered : 1.0f;
#pragma unroll
      for (float& value : values) value = value * factor;
    }
    TransformTaco(place.lanes, values);
    largest = LargestOfTaco(place.lanes, values);
    const bool overflowed = !(largest <= FLT_MAX);
    if (pass > 0 || !__any_sync(kAllLanes, overflowed)) break;
    lowered = overflowed;
  }
  if (!(largest <= FLT_MAX)) {
#pragma unroll
    for (uint32_t& word : codes) word = 0;
    return {__uint_as_float(taco::kNanBits), true};
  }
  const taco::Scaling scaling(largest, lowered, args.largest, args.unit);
  if (scaling.tiny) {
#pragma unroll
    for (float& value : values) value = value * taco::kRaised;
  }
#pragma unroll
  for (float& value : values) value = value * scaling.to_codes;
#pragma unroll
  for (int k = 0; k < kTacoOfLane / 4; ++k) {
    codes[k] =
        FourCodes<kFormat>(values[4 * k], values[4 * k + 1], values[4 * k + 2], values[4 * k + 3]);
  }
  return {scaling.c, false};
}

// Writes a block's codes and scale to the payload. The last block also writes the zeros behind the
// scales.
__device__ inline void StoreTacoBlock(const TacoFlatArgs& args, const TacoPlace& place, float c,
                                      const TacoCodes& codes) {
  if (!place.there) return;
  unsigned char* const to = args.payload_dev + args.codes + place.offset;
#pragma unroll
  for (int run = 0; run < kTacoRuns; ++run) {
    *reinterpret_cast<uint2*>(to + place.RunBegin(run)) =
        make_uint2(codes[2 * run], codes[2 * run + 1]);
  }
  if (place.lane != 0) return;
  auto* const scales = reinterpret_cast<float*>(args.payload_dev);
  scales[place.block] = c;
  if (place.block + 1 == args.blocks) {
    for (uint64_t k = args.blocks; k < args.codes / 4; ++k) scales[k] = 0;
  }
}

__device__ inline void LoadTacoCodes(const unsigned char* payload, uint64_t codes_offset,
                                     const TacoPlace& place, TacoCodes& codes) {
  const unsigned char* const from = payload + codes_offset + place.offset;
#pragma unroll
  for (int run = 0; run < kTacoRuns; ++run) {
    const uint2 two = __ldcs(reinterpret_cast<const uint2*>(from + place.RunBegin(run)));
    codes[2 * run] = two.x;
    codes[2 * run + 1] = two.y;
  }
}

// Sets `values` to H of the codes' numbers. Returns false if the block decodes to NaN, because c or
// a code is no finite number. Such a code makes every result of H non-finite, so each lane checks
// only its first value.
template <Format kFormat>
__device__ inline bool NumbersOfTaco(const TacoPlace& place, const TacoCodes& codes, float c,
                                     TacoValues& values) {
#pragma unroll
  for (int k = 0; k < kTacoOfLane / 4; ++k) FourNumbers<kFormat>(codes[k], values + 4 * k);
  TransformTaco(place.lanes, values);
  return fabsf(values[0]) + fabsf(c) <= FLT_MAX;
}

// Multiplies by the block's scale, and clamps to +-limit. `unit`: 1 / (Q B). |value| * unit is at
// most 1, except for rounding errors.
__device__ inline void ScaleTaco(float c, float limit, float unit, TacoValues& values) {
  if (c >= 0 && c <= 0.5f * limit * unit) {
#pragma unroll
    for (float& value : values) value = value * c;
    return;
  }
  const taco::ScaleOf scale(c);
#pragma unroll
  for (float& value : values) {
    value = fminf(fmaxf(value * scale.first * scale.second, -limit), limit);
  }
}

// Stores the quiet NaN to all elements of the lane.
template <uint32_t kDtype>
__device__ inline void StoreTacoNan(void* data, const TacoPlace& place) {
#pragma unroll 1
  for (int k = 0; k < kTacoOfLane; ++k) {
    const uint32_t element = place.RunBegin(k / kTacoRun) + k % kTacoRun;
    if (element < place.count) {
      StoreElement(__uint_as_float(taco::kNanBits), data, kDtype, place.offset + element);
    }
  }
}

// Stores the lane's elements, rounded to nearest even. Values too large for the dtype become
// infinities. NaNs are stored right only with `one_by_one`, which is slower.
template <uint32_t kDtype>
__device__ inline void StoreTaco(void* data, const TacoPlace& place, bool one_by_one,
                                 const TacoValues& values) {
  if (one_by_one || !place.Whole() || !Aligned16(data)) {
#pragma unroll
    for (int k = 0; k < kTacoOfLane; ++k) {
      const uint32_t element = place.RunBegin(k / kTacoRun) + k % kTacoRun;
      if (element < place.count) StoreElement(values[k], data, kDtype, place.offset + element);
    }
    return;
  }
  if constexpr (kDtype == kF32) {
    float* const to = static_cast<float*>(data) + place.offset;
#pragma unroll
    for (int k = 0; k < kTacoOfLane; k += 4) {
      *reinterpret_cast<float4*>(to + place.RunBegin(k / kTacoRun) + k % kTacoRun) =
          make_float4(values[k], values[k + 1], values[k + 2], values[k + 3]);
    }
    return;
  }
  uint16_t* const to = static_cast<uint16_t*>(data) + place.offset;
#pragma unroll
  for (int run = 0; run < kTacoRuns; ++run) {
    uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* const two = &values[run * kTacoRun + 2 * k];
      if constexpr (kDtype == kBf16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[k]) : "f"(two[1]), "f"(two[0]));
      } else {
        const __half2 both = __floats2half2_rn(two[0], two[1]);
        words[k] = *reinterpret_cast<const uint32_t*>(&both);
      }
    }
    *reinterpret_cast<uint4*>(to + place.RunBegin(run)) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Scales and stores the values that NumbersOfTaco computed. `numbers`: its result.
template <uint32_t kDtype>
__device__ inline void StoreDecoded(void* data, const TacoPlace& place, bool numbers, float c,
                                    float unit, TacoValues& values) {
  if (!numbers) {
    StoreTacoNan<kDtype>(data, place);
    return;
  }
  ScaleTaco(c, LargestFinite(kDtype), unit, values);
  StoreTaco<kDtype>(data, place, /*one_by_one=*/false, values);
}

// L of blocks of the default size, for which kernels are compiled separately.
inline constexpr uint32_t kTacoUsualLanes = 8;

// OfTaco returns function.operator()<kFormat, kDtype, kLanes>() for the format, dtype and block of
// the arguments. kLanes is L for blocks of the default size, and 0 for others: the kernel then
// computes L from the arguments.
template <Format kFormat, uint32_t kDtype, class Function>
int OfTacoLanes(uint32_t block, const Function& function) {
  if (block == kTacoUsualLanes * kTacoOfLane) {
    return function.template operator()<kFormat, kDtype, kTacoUsualLanes>();
  }
  return function.template operator()<kFormat, kDtype, 0>();
}
template <Format kFormat, class Function>
int OfTacoDtype(const TacoFlatArgs& args, const Function& function) {
  if (args.dtype == kF32) return OfTacoLanes<kFormat, kF32>(args.block, function);
  if (args.dtype == kF16) return OfTacoLanes<kFormat, kF16>(args.block, function);
  return OfTacoLanes<kFormat, kBf16>(args.block, function);
}
template <class Function>
int OfTaco(const TacoFlatArgs& args, const Function& function) {
  if (args.format == static_cast<uint32_t>(Format::kE4m3)) {
    return OfTacoDtype<Format::kE4m3>(args, function);
  }
  if (args.format == static_cast<uint32_t>(Format::kE5m2)) {
    return OfTacoDtype<Format::kE5m2>(args, function);
  }
  return OfTacoDtype<Format::kInt8>(args, function);
}

}  // namespace longhaul::codec::cuda
