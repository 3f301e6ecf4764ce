// Computes the random numbers of rounding.h, several blocks of Philox at a time, for one target of
// Highway.
#if defined(LONGHAUL_CODEC_SIMD_NOISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_SIMD_NOISE_INL_H_
#undef LONGHAUL_CODEC_SIMD_NOISE_INL_H_
#else
#define LONGHAUL_CODEC_SIMD_NOISE_INL_H_
#endif

#include "codec/rounding.h"
#include "codec/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::simd::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Stores the numbers of several blocks in order. w0 to w3 have words 0 to 3 of the blocks. Each
// block has one 64-bit lane in each vector, with the word in the lower half of the lane.
HWY_INLINE void StoreBlocks(VU w0, VU w1, VU w2, VU w3, uint16_t* out) {
  const hn::Repartition<uint64_t, DU> d64;
  const auto upper = [&](VU word) HWY_ATTR {
    return hn::BitCast(DU(), hn::ShiftLeft<32>(hn::BitCast(d64, word)));
  };
  const VU first = hn::OddEven(upper(w1), w0);
  const VU second = hn::OddEven(upper(w3), w2);
  hn::StoreInterleaved2(hn::BitCast(d64, first), hn::BitCast(d64, second), d64,
                        reinterpret_cast<uint64_t*>(out));
}
#endif

// FillNoise makes kNoiseStride numbers at a time, in two independent chains of vectors: while one
// chain waits for its products, the CPU computes the other.
inline constexpr size_t kNoiseChains = 2;
inline constexpr size_t kNoiseStride = kNoiseChains * kNoisesOfBlock * ((kLanes + 1) / 2);

// As RoundingNoise::Fill, but `count` is rounded up to a multiple of kNoiseStride. `out` must have
// room for these numbers and be aligned to 64 bytes.
HWY_INLINE void FillNoise(const RoundingNoise& noise, uint64_t index, size_t count, uint16_t* out) {
#if HWY_TARGET == HWY_SCALAR
  noise.Fill(index, static_cast<int>(count), out);
#else
  // A block has a 64-bit lane in each of four vectors. Only the lower halves of these lanes count,
  // because MulEven reads no others.
  using D64 = hn::Repartition<uint64_t, DU>;
  const D64 d64;
  constexpr size_t kBlocks = hn::MaxLanes(d64);
  constexpr size_t kOfChain = kNoisesOfBlock * kBlocks;
  static_assert(kNoiseStride == kNoiseChains * kOfChain);
  const Philox::Counter& base = noise.block();
  for (size_t k = 0; k < count; k += kNoiseStride) {
    VU c0[kNoiseChains];
    VU c1[kNoiseChains];
    VU c2[kNoiseChains];
    VU c3[kNoiseChains];
    for (size_t chain = 0; chain < kNoiseChains; ++chain) {
      const auto number =
          hn::Add(hn::Set(d64, (index + k) / kNoisesOfBlock + chain * kBlocks), hn::Iota(d64, 0));
      c0[chain] = hn::BitCast(DU(), number);
      c1[chain] = hn::BitCast(DU(), hn::ShiftRight<32>(number));
      c2[chain] = Bits(base[0]);
      c3[chain] = Bits(base[1]);
    }
    VU key0 = Bits(base[2]);
    VU key1 = Bits(base[3]);
    for (unsigned round = 0; round < kNoiseRounds; ++round) {
      for (size_t chain = 0; chain < kNoiseChains; ++chain) {
        const auto a = hn::MulEven(c0[chain], Bits(0xD2511F53));
        const auto b = hn::MulEven(c2[chain], Bits(0xCD9E8D57));
        c0[chain] = hn::Xor(hn::BitCast(DU(), hn::ShiftRight<32>(b)), hn::Xor(c1[chain], key0));
        c2[chain] = hn::Xor(hn::BitCast(DU(), hn::ShiftRight<32>(a)), hn::Xor(c3[chain], key1));
        c1[chain] = hn::BitCast(DU(), b);
        c3[chain] = hn::BitCast(DU(), a);
      }
      key0 = hn::Add(key0, Bits(0x9E3779B9));
      key1 = hn::Add(key1, Bits(0xBB67AE85));
    }
    for (size_t chain = 0; chain < kNoiseChains; ++chain) {
      StoreBlocks(c0[chain], c1[chain], c2[chain], c3[chain], out + k + chain * kOfChain);
    }
  }
#endif
}

// Returns RoundingNoise::Middle of the kLanes numbers at `from`.
HWY_INLINE VF LoadMiddles(const uint16_t* from) {
  const VF numbers = hn::ConvertTo(DF(), hn::BitCast(DI(), LoadHalves(from)));
  return hn::Add(hn::Mul(numbers, Float(0x1p-16f)), Float(0x1p-17f));
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_NOISE_INL_H_
