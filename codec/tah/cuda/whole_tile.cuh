// The work of tah's encoder for whole tiles (encode_whole.cuh) on one tile, which one thread
// handles alone: estimates the tile's entropy, and computes the codes of all but a few tiles.
#pragma once

#include "codec/cuda/module/whole_tiles.cuh"

namespace longhaul::codec::cuda {

// The estimate uses the hardware's logarithms, with a relative error of 2^-22. If the tile's
// largest magnitude is in [2^-30, 2^30), the estimate differs from the entropy of step 1 by less
// than 2^-12 (each of the 32 terms of a sum rounds by at most 2^-24 x 36 N). The difference is less
// than half a bin of the selection (select.cuh), which needs no better accuracy.
inline constexpr int kEstimatedExponents = 30;

__device__ inline float Log2Estimate(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The range of a tile's values; a1 and a2 are those of step 3 of format.h.
struct Range {
  float low, high;        // the smallest and the largest value
  float largest, second;  // a1, and a lower bound of a2
};

// The sums for the estimate of a tile's entropy, of |x| instead of y, which is |x| scaled. Each sum
// is kept as two partial sums, with `half` 0 and 1.
struct EntropyEstimate {
  __device__ void Add(float x, int half) { Add(x, half, fabsf(x)); }
  // For any x. Zeros and subnormals have no Log2Estimate, so 2^-126 is added before the logarithm.
  // The addition changes no larger |x|.
  __device__ void AddAny(float x, int half) { Add(x, half, fabsf(x) + 0x1p-126f); }
  __device__ bool Finite() const { return fabsf(l[0] + l[1]) < __uint_as_float(kF32Infinity); }
  __device__ float Bits() const {
    const float sum = n[0] + n[1];
    return Log2Estimate(sum) - __fdividef(l[0] + l[1], sum);
  }

  float n[2] = {0, 0}, l[2] = {0, 0};

 private:
  __device__ void Add(float x, int half, float y) {
    n[half] = n[half] + fabsf(x);
    l[half] = __fmaf_rn(fabsf(x), Log2Estimate(y), l[half]);
  }
};

// Reads a tile of bf16 once, and keeps what the encoder needs to know about the tile.
class TileSurvey {
 public:
  // units.Unit(k) returns unit k of the tile, eight numbers. All lanes of the warp must call it.
  template <class Units>
  __device__ explicit TileSurvey(const Units& units) {
#pragma unroll
    for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
      const uint4 eight = units.Unit(unit);
      const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        const __nv_bfloat162 two = AsBf16s(words[k]);
        if (unit < 2 && k == 0) {
          low_[unit] = high_[unit] = two;
        } else {
          low_[unit % 2] = __hmin2_nan(low_[unit % 2], two);
          high_[unit % 2] = __hmax2_nan(high_[unit % 2], two);
        }
        estimate_.Add(LowOf(words[k]), 0);
        estimate_.Add(HighOf(words[k]), 1);
      }
    }
    const __nv_bfloat162 lowest = __hmin2_nan(low_[0], low_[1]);
    const __nv_bfloat162 highest = __hmax2_nan(high_[0], high_[1]);
    least_ = __low2float(__hmin2_nan(lowest, __lowhigh2highlow(lowest)));
    most_ = __low2float(__hmax2_nan(highest, __lowhigh2highlow(highest)));
    if (__any_sync(kAllLanes, !estimate_.Finite())) {
      estimate_ = {};
#pragma unroll 1
      for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
        const uint4 eight = units.Unit(unit);
        for (const uint32_t word : {eight.x, eight.y, eight.z, eight.w}) {
          estimate_.AddAny(LowOf(word), 0);
          estimate_.AddAny(HighOf(word), 1);
        }
      }
    }
  }

  // Returns the bits of the largest magnitude: kF32Infinity or more if and only if a number is not
  // finite.
  __device__ uint32_t Largest() const {
    return max(__float_as_uint(least_) & 0x7fffffff, __float_as_uint(most_) & 0x7fffffff);
  }
  // Returns the estimated entropy in bits.
  __device__ float Entropy() const {
    return estimate_.Bits();
  }
  // Returns the range of v = x * factor.
  __device__ Range Scaled(float factor) const {
    // Four parts of the tile: lower and upper halves of words, in even and in odd units.
    float parts[4];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const __nv_bfloat162 magnitude = __hmax2_nan(__hneg2(low_[k]), high_[k]);
      parts[2 * k] = __low2float(magnitude);
      parts[2 * k + 1] = __high2float(magnitude);
    }
    const float a = fmaxf(parts[0], parts[1]);
    const float b = fmaxf(parts[2], parts[3]);
    const float second =
        fmaxf(fminf(a, b), a > b ? fminf(parts[0], parts[1]) : fminf(parts[2], parts[3]));
    // The larger one of -least_ and most_; NaN if both are NaN.
    const float largest = most_ > -least_ ? most_ : -least_;
    return {least_ * factor, most_ * factor, largest * factor, second * factor};
  }

 private:
  EntropyEstimate estimate_;
  __nv_bfloat162 low_[2], high_[2];
  float least_, most_;
};

// Codes without a division for each number: with d = v - zero,
//   RN_bf16(RN_fp32(d / scale + 144)) = 144 + code,
// where RN rounds to nearest even. The product with 1 / scale replaces the quotient, with an error
// below 2^-20. The inner sum has steps of 2^-16, so a quotient within 2^-16.8 of the middle of two
// codes becomes the middle, and goes to the even code. This is right only for an exact middle, but
// no other quotient is so close: v, zero and scale / 2 are multiples of more than 2^-16.8 scale,
// and so is the distance from a middle. There are two exceptions. zero is tiny compared with scale
// (Fits). Or v is tiny, below 2^-8 scale, and -zero is within 2^-8 + 2^-16.8 scale of a middle
// (FitsTiny).
struct Quantizer {
  static constexpr float kMagic = 144;
  static constexpr uint32_t kMagicBits = 0x4310;

  // The sum of kMagicBits at the places of a word's eight codes (MakePlanes).
  static constexpr uint32_t kMagicOfEight = 0x1111u * (kMagicBits * 0x10001u);

  float zero, scale, reciprocal;

  // Returns 144 + (v - zero) / scale for v = x * factor.
  __device__ float Sum(float factor, float x) const {
    // The product is exact, unless it is too small to matter.
    const float distance = __fmaf_rn(x, factor, -zero);
    return __fmaf_rn(distance, reciprocal, kMagic);
  }
  // Returns whether the codes are exact unless a v is tiny: zero is not tiny, and no code must be
  // clamped to [0, top].
  __device__ bool Fits(const Range& range, float top) const {
    return scale >= 0x1p-14f && (zero == 0 || fabsf(zero) >= scale / 16) &&
           (range.low - zero) * reciprocal > -0.49f &&
           (range.high - zero) * reciprocal < top + 0.49f;
  }
  // Returns whether the codes are exact for tiny v, too.
  __device__ bool FitsTiny() const {
    const float origin = -zero * reciprocal;
    return fabsf(origin - floorf(origin) - 0.5f) > 0.004f;
  }
};

// Returns the smallest magnitude of the lane's tile, unscaled.
__device__ inline float SmallestMagnitude(const WarpTiles& tiles) {
  uint32_t smallest = 0x7fff7fff;
#pragma unroll
  for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
    const uint4 eight = tiles.Unit(unit);
    smallest = __vminu2(smallest, eight.x & 0x7fff7fff);
    smallest = __vminu2(smallest, eight.y & 0x7fff7fff);
    smallest = __vminu2(smallest, eight.z & 0x7fff7fff);
    smallest = __vminu2(smallest, eight.w & 0x7fff7fff);
  }
  return fminf(LowOf(smallest), HighOf(smallest));
}

// Computes the four bit planes of the lane's tile, two words each.
__device__ inline void MakePlanes(const WarpTiles& tiles, const Quantizer& quantizer, float factor,
                                  uint32_t (&planes)[4][2]) {
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    // Code 4 n + w of 32 goes to nibble n of word w. Two codes at a time, 16 elements apart.
    uint32_t words[4];
#pragma unroll
    for (uint32_t pair = 0; pair < 2; ++pair) {
      const uint4 a = tiles.Unit(4 * half + pair);
      const uint4 b = tiles.Unit(4 * half + pair + 2);
      const uint32_t first[4] = {a.x, a.y, a.z, a.w};
      const uint32_t second[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (uint32_t k = 0; k < 8; ++k) {
        const uint32_t mine = first[k / 2];
        const uint32_t other = second[k / 2];
        const uint32_t two =
            ToBf16s(quantizer.Sum(factor, k % 2 == 0 ? LowOf(mine) : HighOf(mine)),
                    quantizer.Sum(factor, k % 2 == 0 ? LowOf(other) : HighOf(other)));
        const uint32_t nibble = 2 * pair + k / 4;
        words[k % 4] =
            nibble == 0 ? two - Quantizer::kMagicOfEight : words[k % 4] + (two << 4 * nibble);
      }
    }
    TransposeFour(words);
#pragma unroll
    for (int plane = 0; plane < 4; ++plane) planes[plane][half] = words[plane];
  }
}

}  // namespace longhaul::codec::cuda
