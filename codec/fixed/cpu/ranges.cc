#include "codec/fixed/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/fixed/cpu/ranges.cc"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>

#include "codec/fixed/at_random.h"
#include "codec/simd/noise-inl.h"
#include "codec/simd/tensor-inl.h"
#include "codec/tile.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::fixed::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace ops = longhaul::codec::simd::HWY_NAMESPACE;
using ops::kBatch;
using ops::kLanes;

template <int kTile>
class Encoder {
 public:
  Encoder(const TensorView& in, const Params& params, const RoundingNoise& noise,
          std::byte* payload)
      : reader_(in),
        layout_(MakeLayout(in.shape, params)),
        sample_tiles_(in.shape.tokens * layout_.tiles_per_token),
        bits_(static_cast<int>(params.bits)),
        top_((1 << (bits_ - 1)) - 1),
        fraction_(static_cast<int>(FractionBits(params.bits))),
        stochastic_(params.rounding == Rounding::kStochastic),
        noise_(noise),
        payload_(payload) {}

  uint64_t Run(const TileRange& range, const ScaleUp& scale_up) {
    uint64_t nonfinite = 0;
    for (uint64_t first = range.first; first < range.end; first += kBatch) {
      const size_t tiles = std::min<uint64_t>(kBatch, range.end - first);
      nonfinite += EncodeBatch(range.sample, first, tiles, scale_up);
    }
    return nonfinite;
  }

 private:
  // Returns how many tiles are not finite.
  HWY_INLINE uint64_t EncodeBatch(uint32_t sample, uint64_t first, size_t tiles,
                                  const ScaleUp& scale_up) {
    const float* const x = reader_.Read(sample, first, tiles);
    ops::PerTile<int32_t> largest;
    ops::LargestMagnitudes<kTile>(x, tiles, &largest);
    ops::PerTile<float> divisor;
    ops::PerTile<uint16_t> stored;
    Scales(largest, scale_up, &divisor, &stored);
    const uint64_t tensor_tile = sample * sample_tiles_ + first;
    std::memcpy(payload_ + layout_.scales + 2 * tensor_tile, stored.at, 2 * tiles);

    if (stochastic_) ops::FillNoise(noise_, tensor_tile * kTile, tiles * kTile, random_);
    uint64_t nonfinite = 0;
    for (size_t tile = 0; tile < tiles; ++tile) {
      const float* values = x + tile * kTile;
      if (largest.at[tile] >= static_cast<int32_t>(kF32Infinity)) {
        ++nonfinite;
        values = zeros_;
      }
      if (stochastic_) {
        QuantizeAtRandom(values, divisor.at[tile], scale_up, tile);
      } else {
        QuantizeToNearest(values, divisor.at[tile], scale_up, tile);
      }
    }
    // A step of its own: the planes' wide loads come after the codes' narrow stores are through.
    for (size_t tile = 0; tile < tiles; ++tile) {
      std::byte* const planes =
          payload_ + layout_.codes + (tensor_tile + tile) * layout_.tile_bytes;
      ops::PackPlanes<kTile>(low_ + tile * kTile, 0, std::min(bits_, 8), planes);
      if (bits_ > 8) {
        ops::PackPlanes<kTile>(high_ + tile * kTile, 0, bits_ - 8, planes + kTile);
      }
    }
    return nonfinite;
  }

  HWY_INLINE void Scales(const ops::PerTile<int32_t>& largest, const ScaleUp& scale_up,
                         ops::PerTile<float>* divisor, ops::PerTile<uint16_t>* stored) const {
    for (size_t tile = 0; tile < kBatch; tile += kLanes) {
      const auto bits = ops::Load(largest.at + tile);
      const auto finite = hn::Lt(bits, ops::Int(kF32Infinity));
      const auto scaled = hn::Mul(hn::Mul(ops::AsFloat(bits), ops::Float(scale_up.first)),
                                  ops::Float(scale_up.second));
      const auto exact = hn::Div(scaled, ops::Float(static_cast<float>(top_)));
      const auto half = hn::IfThenElse(hn::RebindMask(ops::DU(), finite),
                                       stochastic_ ? ops::F32ToF16Up(exact) : ops::F32ToF16(exact),
                                       ops::Bits(kF16Nan));
      ops::StoreHalves(half, stored->at + tile);
      // A tile with a NaN has one, too: its zeros are divided by it.
      ops::Store(ops::Divisor(ops::F16ToF32(half)), divisor->at + tile);
    }
  }

  // Codes of a tile, q + 2^(b-1), to low_ and, above 8 bits, high_.
  HWY_INLINE void QuantizeToNearest(const float* values, float divisor, const ScaleUp& scale_up,
                                    size_t tile) {
    const auto limit = ops::Float(static_cast<float>(top_));
    const auto lower = ops::Float(-static_cast<float>(top_));
    const auto offset = ops::Int(1 << (bits_ - 1));
    StoreCodes(tile, [&](size_t k) HWY_ATTR {
      const auto quotient = hn::Div(Scaled(values + k, scale_up), ops::Float(divisor));
      return hn::Add(ops::RoundToNearest(hn::Min(hn::Max(quotient, lower), limit)), offset);
    });
  }

  HWY_INLINE void QuantizeAtRandom(const float* values, float divisor, const ScaleUp& scale_up,
                                   size_t tile) {
    const auto one = static_cast<float>(1 << fraction_);
    const auto factor = ops::Float(one / divisor);
    const auto limit = ops::Float(static_cast<float>(top_) * one);
    const auto lower = ops::Float(-static_cast<float>(top_) * one);
    const auto origin = ops::Bits(RandomOrigin(static_cast<uint32_t>(bits_)));
    const uint16_t* const random = random_ + tile * kTile;
    StoreCodes(tile, [&](size_t k) HWY_ATTR {
      const auto product = hn::Mul(Scaled(values + k, scale_up), factor);
      const auto w = hn::Min(hn::Max(product, lower), limit);
      const auto number = hn::ShiftRightSame(ops::LoadHalves(random + k), 16 - fraction_);
      const auto sum = hn::Add(w, ops::AsFloat(hn::Add(origin, number)));
      return hn::ShiftRightSame(hn::And(ops::AsInt(sum), ops::Int(kMantissa)), fraction_);
    });
  }

  HWY_INLINE static ops::VF Scaled(const float* values, const ScaleUp& scale_up) {
    return hn::Mul(hn::Mul(ops::Load(values), ops::Float(scale_up.first)),
                   ops::Float(scale_up.second));
  }

  // `code(k)`: those of elements k and following.
  template <class Function>
  HWY_INLINE void StoreCodes(size_t tile, Function&& code) {
    uint8_t* const low = low_ + tile * kTile;
    if (bits_ <= 8) {
      ops::StoreAllCodes<kTile>(code, low);
      return;
    }
    alignas(64) int32_t codes[kTile];
    for (size_t k = 0; k < kTile; k += kLanes) ops::Store(code(k), codes + k);
    const auto low_byte = [&](size_t k)
                              HWY_ATTR { return hn::And(ops::Load(codes + k), ops::Int(0xff)); };
    const auto high_byte = [&](size_t k)
                               HWY_ATTR { return hn::ShiftRight<8>(ops::Load(codes + k)); };
    ops::StoreAllCodes<kTile>(low_byte, low);
    ops::StoreAllCodes<kTile>(high_byte, high_ + tile * kTile);
  }

  ops::TileReader<kTile> reader_;
  const Layout layout_;
  const uint64_t sample_tiles_;
  const int bits_;
  const int top_;
  const int fraction_;  // bits of the quotients of stochastic rounding
  const bool stochastic_;
  const RoundingNoise& noise_;
  std::byte* const payload_;
  alignas(64) const float zeros_[kTile] = {};
  alignas(64) uint16_t random_[kBatch * kTile];
  alignas(64) uint8_t low_[kBatch * kTile];
  alignas(64) uint8_t high_[kBatch * kTile];
};

template <int kTile>
class Decoder {
 public:
  Decoder(const std::byte* payload, const Params& params, const MutableTensorView& out)
      : payload_(payload),
        layout_(MakeLayout(out.shape, params)),
        sample_tiles_(out.shape.tokens * layout_.tiles_per_token),
        bits_(static_cast<int>(params.bits)),
        writer_(out) {}

  void Run(const TileRange& range, const ScaleBack& scale_back) {
    for (uint64_t first = range.first; first < range.end; first += kBatch) {
      DecodeBatch(range.sample, first, std::min<uint64_t>(kBatch, range.end - first), scale_back);
    }
  }

 private:
  HWY_INLINE void DecodeBatch(uint32_t sample, uint64_t first, size_t tiles,
                              const ScaleBack& scale_back) {
    const uint64_t tensor_tile = sample * sample_tiles_ + first;
    ops::PerTile<uint16_t> stored;
    std::memcpy(stored.at, payload_ + layout_.scales + 2 * tensor_tile, 2 * tiles);
    ops::PerTile<float> scales;
    for (size_t tile = 0; tile < kBatch; tile += kLanes) {
      ops::Store(ops::F16ToF32(ops::LoadHalves(stored.at + tile)), scales.at + tile);
    }
    for (size_t tile = 0; tile < tiles; ++tile) {
      const std::byte* const planes =
          payload_ + layout_.codes + (tensor_tile + tile) * layout_.tile_bytes;
      ops::UnpackPlanes<kTile>(planes, std::min(bits_, 8), low_ + tile * kTile);
      if (bits_ > 8) {
        ops::UnpackPlanes<kTile>(planes + kTile, bits_ - 8, high_ + tile * kTile);
      }
    }
    float* const out = writer_.At(sample, first);
    for (size_t tile = 0; tile < tiles; ++tile) {
      float* const values = out + tile * kTile;
      if ((stored.at[tile] & 0x7c00) == 0x7c00) {
        FillNan<kTile>(values);
      } else {
        Dequantize(tile, scales.at[tile], scale_back, values);
      }
    }
    writer_.Write(sample, first, tiles);
  }

  HWY_INLINE void Dequantize(size_t tile, float scale, const ScaleBack& scale_back,
                             float* values) const {
    const auto offset = ops::Float(static_cast<float>(1 << (bits_ - 1)));
    for (size_t k = 0; k < kTile; k += kLanes) {
      auto code = ops::LoadCodes(low_ + tile * kTile + k);
      if (bits_ > 8) {
        // Integers this small are exact.
        code = hn::Add(code, hn::Mul(ops::LoadCodes(high_ + tile * kTile + k), ops::Float(256)));
      }
      const auto value = hn::Mul(hn::Sub(code, offset), ops::Float(scale));
      const auto back =
          hn::Mul(hn::Mul(value, ops::Float(scale_back.first)), ops::Float(scale_back.second));
      ops::Store(writer_.Clamp(back), values + k);
    }
  }

  const std::byte* const payload_;
  const Layout layout_;
  const uint64_t sample_tiles_;
  const int bits_;
  ops::TileWriter<kTile> writer_;
  alignas(64) uint8_t low_[kBatch * kTile];
  alignas(64) uint8_t high_[kBatch * kTile];
};

template <int kTile>
uint32_t LargestOfTiles(const TensorView& in, const TileRange& range) {
  ops::TileReader<kTile> reader(in);
  uint32_t found = 0;
  for (uint64_t first = range.first; first < range.end; first += kBatch) {
    const size_t tiles = std::min<uint64_t>(kBatch, range.end - first);
    ops::PerTile<int32_t> largest;
    ops::LargestMagnitudes<kTile>(reader.Read(range.sample, first, tiles), tiles, &largest);
    found = std::max(found, ops::LargestFinite(largest));
  }
  return found;
}

uint32_t LargestOnTarget(const TensorView& in, const Params& params, const TileRange& range) {
  if (params.tile == 32) return LargestOfTiles<32>(in, range);
  if (params.tile == 128) return LargestOfTiles<128>(in, range);
  return LargestOfTiles<64>(in, range);
}

uint64_t EncodeOnTarget(const TensorView& in, const Params& params, const RoundingNoise& noise,
                        const TileRange& range, int exponent, std::byte* payload) {
  const ScaleUp scale_up(exponent);
  if (params.tile == 32) return Encoder<32>(in, params, noise, payload).Run(range, scale_up);
  if (params.tile == 128) return Encoder<128>(in, params, noise, payload).Run(range, scale_up);
  return Encoder<64>(in, params, noise, payload).Run(range, scale_up);
}

void DecodeOnTarget(const std::byte* payload, const Params& params, const TileRange& range,
                    int exponent, const MutableTensorView& out) {
  const ScaleBack scale_back(exponent);
  if (params.tile == 32) return Decoder<32>(payload, params, out).Run(range, scale_back);
  if (params.tile == 128) return Decoder<128>(payload, params, out).Run(range, scale_back);
  Decoder<64>(payload, params, out).Run(range, scale_back);
}

}  // namespace longhaul::codec::fixed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::fixed::cpu {

HWY_EXPORT(LargestOnTarget);
HWY_EXPORT(EncodeOnTarget);
HWY_EXPORT(DecodeOnTarget);

uint32_t LargestOfRange(const TensorView& in, const Params& params, const TileRange& range) {
  return HWY_DYNAMIC_DISPATCH(LargestOnTarget)(in, params, range);
}

uint64_t EncodeRange(const TensorView& in, const Params& params, const RoundingNoise& noise,
                     const TileRange& range, int exponent, std::byte* payload) {
  return HWY_DYNAMIC_DISPATCH(EncodeOnTarget)(in, params, noise, range, exponent, payload);
}

void DecodeRange(const std::byte* payload, const Params& params, const TileRange& range,
                 int exponent, const MutableTensorView& out) {
  HWY_DYNAMIC_DISPATCH(DecodeOnTarget)(payload, params, range, exponent, out);
}

}  // namespace longhaul::codec::fixed::cpu
#endif  // HWY_ONCE
