// The numbers of rounding.h for one target of Highway, several blocks of Philox at a time.
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
// Words 0 to 3 of blocks, each in the lower half of the block's 64-bit lane, to numbers in order.
HWY_INLINE void StoreBlocks(VU w0, VU w1, VU w2, VU w3, float* out) {
  const hn::Repartition<uint64_t, DU> d64;
  const auto upper = [&](VU word) HWY_ATTR {
    return hn::BitCast(DU(), hn::ShiftLeft<32>(hn::BitCast(d64, word)));
  };
  const VU first = hn::OddEven(upper(w1), w0);
  const VU second = hn::OddEven(upper(w3), w2);
  alignas(64) uint64_t words[2 * hn::MaxLanes(d64)];
  hn::StoreInterleaved2(hn::BitCast(d64, first), hn::BitCast(d64, second), d64, words);
  for (size_t half = 0; half < 2; ++half) {
    const VU bits = hn::BitCast(DU(), hn::Load(d64, words + half * hn::MaxLanes(d64)));
    const VF numbers = hn::ConvertTo(DF(), hn::BitCast(DI(), hn::ShiftRight<8>(bits)));
    Store(hn::Mul(numbers, Float(1.0f / 16777216.0f)), out + half * kLanes);
  }
}
#endif

// RoundingNoise::Fill for kCount numbers, a multiple of 32.
template <size_t kCount>
HWY_INLINE void FillNoise(const RoundingNoise& noise, uint64_t index, float* out) {
#if HWY_TARGET == HWY_SCALAR
  noise.Fill(index, kCount, out);
#else
  // A block has a 64-bit lane in each of four vectors; only the lower halves count, MulEven reads
  // no others. Two chains of vectors at a time, since each waits for its products.
  using D64 = hn::Repartition<uint64_t, DU>;
  const D64 d64;
  constexpr size_t kBlocks = hn::MaxLanes(d64);
  constexpr size_t kChains = kCount % (8 * kBlocks) == 0 ? 2 : 1;
  const Philox::Counter& base = noise.block();
  for (size_t k = 0; k < kCount; k += kChains * 4 * kBlocks) {
    VU c0[kChains];
    VU c1[kChains];
    VU c2[kChains];
    VU c3[kChains];
    for (size_t chain = 0; chain < kChains; ++chain) {
      const auto number =
          hn::Add(hn::Set(d64, (index + k) / 4 + chain * kBlocks), hn::Iota(d64, 0));
      c0[chain] = hn::BitCast(DU(), number);
      c1[chain] = hn::BitCast(DU(), hn::ShiftRight<32>(number));
      c2[chain] = Bits(base[0]);
      c3[chain] = Bits(base[1]);
    }
    VU key0 = Bits(base[2]);
    VU key1 = Bits(base[3]);
    for (int round = 0; round < 10; ++round) {
      for (size_t chain = 0; chain < kChains; ++chain) {
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
    for (size_t chain = 0; chain < kChains; ++chain) {
      StoreBlocks(c0[chain], c1[chain], c2[chain], c3[chain], out + k + chain * 4 * kBlocks);
    }
  }
#endif
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_NOISE_INL_H_
