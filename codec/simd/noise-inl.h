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

// RoundingNoise::Fill for kCount numbers, a multiple of 32.
template <size_t kCount>
HWY_INLINE void FillNoise(const RoundingNoise& noise, uint64_t index, float* out) {
#if HWY_TARGET == HWY_SCALAR
  noise.Fill(index, kCount, out);
#else
  // A block has a 64-bit lane in each of four vectors; only the lower halves count. MulEven reads
  // no others.
  using D64 = hn::Repartition<uint64_t, DU>;
  const D64 d64;
  constexpr size_t kBlocks = hn::MaxLanes(d64);
  const Philox::Counter& base = noise.block();
  const auto mul_a = Bits(0xD2511F53);
  const auto mul_b = Bits(0xCD9E8D57);
  for (size_t k = 0; k < kCount; k += 4 * kBlocks) {
    const uint64_t block = (index + k) / 4;
    const auto number = hn::Add(hn::Set(d64, block), hn::Iota(d64, 0));
    VU c0 = hn::BitCast(DU(), number);
    VU c1 = hn::BitCast(DU(), hn::ShiftRight<32>(number));
    VU c2 = Bits(base[0]);
    VU c3 = Bits(base[1]);
    uint32_t key0 = base[2];
    uint32_t key1 = base[3];
    for (int round = 0; round < 10; ++round) {
      const auto a = hn::MulEven(c0, mul_a);
      const auto b = hn::MulEven(c2, mul_b);
      c0 = hn::Xor(hn::BitCast(DU(), hn::ShiftRight<32>(b)), hn::Xor(c1, Bits(key0)));
      c2 = hn::Xor(hn::BitCast(DU(), hn::ShiftRight<32>(a)), hn::Xor(c3, Bits(key1)));
      c1 = hn::BitCast(DU(), b);
      c3 = hn::BitCast(DU(), a);
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    const auto pair = [](VU even, VU odd) HWY_ATTR {
      return hn::OddEven(hn::BitCast(DU(), hn::ShiftLeft<32>(hn::BitCast(D64(), odd))), even);
    };
    const auto first = hn::BitCast(d64, pair(c0, c1));
    const auto second = hn::BitCast(d64, pair(c2, c3));
    alignas(64) uint64_t words[2 * kBlocks];
    hn::StoreInterleaved2(first, second, d64, words);
    for (size_t half = 0; half < 2; ++half) {
      const VU bits = hn::BitCast(DU(), hn::Load(d64, words + half * kBlocks));
      const VF numbers = hn::ConvertTo(DF(), hn::BitCast(DI(), hn::ShiftRight<8>(bits)));
      Store(hn::Mul(numbers, Float(1.0f / 16777216.0f)), out + k + half * kLanes);
    }
  }
#endif
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_NOISE_INL_H_
