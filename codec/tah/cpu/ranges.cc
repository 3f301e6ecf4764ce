#include "codec/tah/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/tah/cpu/ranges.cc"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>

#include "codec/simd/noise-inl.h"
#include "codec/simd/tensor-inl.h"
#include "codec/tah/cpu/bits.h"
#include "codec/tah/cpu/entropy-inl.h"
#include "codec/tah/cpu/quantize-inl.h"
#include "codec/tile.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::tah::cpu::HWY_NAMESPACE {

// Steps 0 and 1.
template <size_t kTile>
class Surveyor {
 public:
  Surveyor(const TensorView& in, const Layout& layout, int32_t* keys)
      : layout_(layout), keys_(keys), reader_(in) {}

  uint32_t Run(const TileRange& range) {
    uint32_t largest = 0;
    if (keys_ == nullptr || layout_.alloc_tiles == 1) {
      for (uint64_t first = range.first; first < range.end; first += kBatch) {
        const size_t tiles = std::min<uint64_t>(kBatch, range.end - first);
        largest = std::max(largest, SurveyTiles(range.sample, first, tiles));
      }
      return largest;
    }
    uint64_t alloc = AllocOfTile(layout_, range.first);
    for (uint64_t first = range.first; first < range.end; ++alloc) {
      const uint64_t tiles =
          std::min(layout_.alloc_tiles, layout_.token_tiles - first % layout_.token_tiles);
      largest = std::max(largest, SurveyAlloc(range.sample, alloc, first, tiles));
      first += tiles;
    }
    return largest;
  }

 private:
  // A batch of tiles, each of them an allocation tile if keys are wanted.
  HWY_INLINE uint32_t SurveyTiles(uint32_t sample, uint64_t first, size_t tiles) {
    const float* const x = reader_.Read(sample, first, tiles);
    ops::PerTile<int32_t> largest;
    ops::LargestMagnitudes<kTile>(x, tiles, &largest);
    if (keys_ != nullptr) {
      EntropyScales scales;
      FindEntropyScales(largest, &scales);
      TileSums sums;
      SumTiles<kTile>(x, tiles, scales, &sums);
      ops::PerTile<int32_t> keys;
      FindKeys(largest, sums, &keys);
      std::memcpy(keys_ + first, keys.at, tiles * sizeof(int32_t));
    }
    return ops::LargestFinite(largest);
  }

  // An allocation tile of any number of tiles: its key.
  uint32_t SurveyAlloc(uint32_t sample, uint64_t alloc, uint64_t first, uint64_t tiles) {
    uint32_t finite_largest = 0;
    int32_t alloc_largest = 0;
    for (uint64_t done = 0; done < tiles; done += kBatch) {
      const size_t batch = std::min<uint64_t>(kBatch, tiles - done);
      ops::PerTile<int32_t> largest;
      ops::LargestMagnitudes<kTile>(reader_.Read(sample, first + done, batch), batch, &largest);
      finite_largest = std::max(finite_largest, ops::LargestFinite(largest));
      alloc_largest = std::max(alloc_largest, *std::max_element(largest.at, largest.at + kBatch));
    }
    ops::PerTile<int32_t> largest;
    std::fill_n(largest.at, kBatch, alloc_largest);
    EntropyScales scales;
    FindEntropyScales(largest, &scales);
    EntropySums total;
    for (uint64_t done = 0; done < tiles; done += kBatch) {
      const size_t batch = std::min<uint64_t>(kBatch, tiles - done);
      TileSums sums;
      SumTiles<kTile>(reader_.Read(sample, first + done, batch), batch, scales, &sums);
      for (size_t tile = 0; tile < batch; ++tile) {
        total.n = total.n + sums.n.at[tile];
        total.l = total.l + sums.l.at[tile];
      }
    }
    keys_[alloc] = alloc_largest < static_cast<int32_t>(kF32Infinity)
                       ? SortKey(Entropy(total))
                       : static_cast<int32_t>(kF32Infinity);
    return finite_largest;
  }

  const Layout& layout_;
  int32_t* const keys_;  // null: not wanted
  ops::TileReader<kTile> reader_;
};

template <size_t kTile>
class Encoder {
 public:
  Encoder(const TensorView& in, const Params& params, const Layout& layout,
          const RoundingNoise& noise, std::byte* payload)
      : params_(params), layout_(layout), noise_(noise), payload_(payload), reader_(in) {}

  template <bool kStochastic>
  uint64_t Run(const TileRange& range, const ScaleUp& scale_up) {
    FourthBits<std::byte> fourth_bits(layout_, payload_, range.sample, range.first);
    uint64_t nonfinite = 0;
    for (uint64_t first = range.first; first < range.end; first += kBatch) {
      const size_t tiles = std::min<uint64_t>(kBatch, range.end - first);
      std::byte* fourth[kBatch];
      for (size_t tile = 0; tile < tiles; ++tile) {
        bool partial = false;
        fourth[tile] = fourth_bits.Next(&partial);
        if (partial) std::memset(fourth[tile], 0, fourth_bits.slot_bytes());
      }
      nonfinite += EncodeBatch<kStochastic>(range.sample, first, tiles, scale_up, fourth);
    }
    return nonfinite;
  }

 private:
  // Steps 3 to 5. `fourth`: where plane 3 of each tile goes, null for a tile of 3 bits. Returns how
  // many tiles are not finite.
  template <bool kStochastic>
  HWY_INLINE uint64_t EncodeBatch(uint32_t sample, uint64_t first, size_t tiles,
                                  const ScaleUp& scale_up, std::byte* const* fourth) {
    const uint64_t tensor_tile = sample * layout_.tiles + first;
    BatchMeta meta;
    for (size_t tile = 0; tile < kBatch; ++tile) {
      meta.top.at[tile] = tile < tiles && fourth[tile] != nullptr ? 15.0f : 7.0f;
    }
    BatchRange range;
    ScaleTiles<kTile>(reader_.Read(sample, first, tiles), tiles, scale_up, values_, &range);
    ops::PerTile<int32_t> largest;
    FindOutliers(range, params_.tau, &meta, &largest);
    uint64_t nonfinite = 0;
    for (size_t tile = 0; tile < tiles; ++tile) {
      float* const values = values_ + tile * kTile;
      if (meta.transformed.at[tile] != 0) {
        meta.pivot.at[tile] =
            TransformTile<kTile>(largest.at[tile], values, range.low.at[tile], range.high.at[tile]);
      } else if (meta.finite.at[tile] == 0) {
        std::fill_n(values, kTile, 0.0f);
        ++nonfinite;
      }
    }
    FindScales<kStochastic>(range, &meta);
    if constexpr (kStochastic) ops::FillNoise(noise_, tensor_tile * kTile, tiles * kTile, random_);
    for (size_t tile = 0; tile < tiles; ++tile) {
      QuantizeTile<kTile, kStochastic>(values_ + tile * kTile, meta.origin.at[tile],
                                       meta.divisor.at[tile], meta.top.at[tile],
                                       random_ + tile * kTile, codes_ + tile * kTile);
    }
    Write(sample, first, tiles, meta, fourth);
    return nonfinite;
  }

  HWY_INLINE void Write(uint32_t sample, uint64_t first, size_t tiles, const BatchMeta& meta,
                        std::byte* const* fourth) {
    const uint64_t tensor_tile = sample * layout_.tiles + first;
    std::memcpy(payload_ + layout_.scales + 2 * tensor_tile, meta.scale.at, 2 * tiles);
    std::memcpy(payload_ + layout_.zeros + 2 * tensor_tile, meta.zero.at, 2 * tiles);
    std::byte* const pivots = payload_ + layout_.pivots + sample * layout_.pivot_bytes;
    for (size_t tile = 0; tile < tiles; ++tile) {
      const uint8_t* const codes = codes_ + tile * kTile;
      ops::PackPlanes<kTile>(codes, 0, 3,
                             payload_ + layout_.codes + (tensor_tile + tile) * 3 * (kTile / 8));
      std::byte nowhere[kTile / 8];
      ops::PackPlanes<kTile>(codes, 3, 1, fourth[tile] != nullptr ? fourth[tile] : nowhere);
      if (meta.pivot.at[tile] != 0) {
        PutBits(pivots, (first + tile) * layout_.pivot_bits, layout_.pivot_bits,
                meta.pivot.at[tile]);
      }
    }
  }

  const Params& params_;
  const Layout& layout_;
  const RoundingNoise& noise_;
  std::byte* const payload_;
  ops::TileReader<kTile> reader_;
  alignas(64) float values_[kBatch * kTile];
  alignas(64) uint16_t random_[kBatch * kTile];
  alignas(64) uint8_t codes_[kBatch * kTile];
};

template <size_t kTile>
class Decoder {
 public:
  Decoder(const std::byte* payload, const Layout& layout, const MutableTensorView& out)
      : payload_(payload), layout_(layout), writer_(out) {}

  void Run(const TileRange& range, const ScaleBack& scale_back) {
    FourthBits<const std::byte> fourth_bits(layout_, payload_, range.sample, range.first);
    for (uint64_t first = range.first; first < range.end; first += kBatch) {
      const size_t tiles = std::min<uint64_t>(kBatch, range.end - first);
      for (size_t tile = 0; tile < tiles; ++tile) {
        bool partial = false;
        UnpackCodes(range.sample * layout_.tiles + first + tile, fourth_bits.Next(&partial),
                    codes_ + tile * kTile);
      }
      DecodeBatch(range.sample, first, tiles, scale_back);
    }
  }

 private:
  HWY_INLINE void UnpackCodes(uint64_t tensor_tile, const std::byte* fourth, uint8_t* codes) {
    constexpr size_t kPlane = kTile / 8;
    static constexpr std::byte kZeros[kPlane] = {};
    std::byte planes[4 * kPlane];
    std::memcpy(planes, payload_ + layout_.codes + tensor_tile * 3 * kPlane, 3 * kPlane);
    std::memcpy(planes + 3 * kPlane, fourth != nullptr ? fourth : kZeros, kPlane);
    ops::UnpackPlanes<kTile>(planes, 4, codes);
  }

  // codes_ to the tensor.
  HWY_INLINE void DecodeBatch(uint32_t sample, uint64_t first, size_t tiles,
                              const ScaleBack& scale_back) {
    const uint64_t tensor_tile = sample * layout_.tiles + first;
    ops::PerTile<uint16_t> stored;
    ops::PerTile<uint16_t> stored_zero;
    std::memcpy(stored.at, payload_ + layout_.scales + 2 * tensor_tile, 2 * tiles);
    std::memcpy(stored_zero.at, payload_ + layout_.zeros + 2 * tensor_tile, 2 * tiles);
    ops::PerTile<float> scale;
    ops::PerTile<float> zero;
    for (size_t tile = 0; tile < kBatch; tile += kLanes) {
      const auto magnitude = hn::And(ops::LoadHalves(stored.at + tile), ops::Bits(0x7fff));
      ops::Store(ops::F16ToF32(magnitude), scale.at + tile);
      ops::Store(ops::F16ToF32(ops::LoadHalves(stored_zero.at + tile)), zero.at + tile);
    }
    const std::byte* const pivots = payload_ + layout_.pivots + sample * layout_.pivot_bytes;
    float* const out = writer_.At(sample, first);
    for (size_t tile = 0; tile < tiles; ++tile) {
      float* const values = out + tile * kTile;
      if ((stored.at[tile] & 0x7c00) == 0x7c00 || (stored_zero.at[tile] & 0x7c00) == 0x7c00) {
        FillNan<kTile>(values);
        continue;
      }
      alignas(64) float scaled[kTile];
      DequantizeTile<kTile>(codes_ + tile * kTile, scale.at[tile], zero.at[tile], scaled);
      if ((stored.at[tile] & kTransformed) != 0) {
        TransformBack<kTile>(
            TakeBits(pivots, (first + tile) * layout_.pivot_bits, layout_.pivot_bits), scaled);
      }
      for (size_t k = 0; k < kTile; k += kLanes) {
        const auto back = hn::Mul(hn::Mul(ops::Load(scaled + k), ops::Float(scale_back.first)),
                                  ops::Float(scale_back.second));
        ops::Store(writer_.Clamp(back), values + k);
      }
    }
    writer_.Write(sample, first, tiles);
  }

  const std::byte* const payload_;
  const Layout& layout_;
  ops::TileWriter<kTile> writer_;
  alignas(64) uint8_t codes_[kBatch * kTile];
};

uint32_t SurveyOnTarget(const TensorView& in, const Layout& layout, const TileRange& range,
                        int32_t* keys) {
  if (layout.pivot_bits == 5) return Surveyor<32>(in, layout, keys).Run(range);
  if (layout.pivot_bits == 7) return Surveyor<128>(in, layout, keys).Run(range);
  return Surveyor<64>(in, layout, keys).Run(range);
}

void MarkOnTarget(const int32_t* keys, uint64_t count, uint64_t fours, std::byte* bits) {
  MarkLowest(keys, count, fours, bits);
}

template <size_t kTile>
uint64_t EncodeTiles(const TensorView& in, const Params& params, const Layout& layout,
                     const RoundingNoise& noise, const TileRange& range, const ScaleUp& scale_up,
                     std::byte* payload) {
  Encoder<kTile> encoder(in, params, layout, noise, payload);
  return params.rounding == Rounding::kStochastic ? encoder.template Run<true>(range, scale_up)
                                                  : encoder.template Run<false>(range, scale_up);
}

uint64_t EncodeOnTarget(const TensorView& in, const Params& params, const Layout& layout,
                        const RoundingNoise& noise, const TileRange& range, int exponent,
                        std::byte* payload) {
  const ScaleUp scale_up(exponent);
  if (params.tile == 32) {
    return EncodeTiles<32>(in, params, layout, noise, range, scale_up, payload);
  }
  if (params.tile == 128) {
    return EncodeTiles<128>(in, params, layout, noise, range, scale_up, payload);
  }
  return EncodeTiles<64>(in, params, layout, noise, range, scale_up, payload);
}

void DecodeOnTarget(const std::byte* payload, const Layout& layout, const TileRange& range,
                    int exponent, const MutableTensorView& out) {
  const ScaleBack scale_back(exponent);
  if (layout.pivot_bits == 5) return Decoder<32>(payload, layout, out).Run(range, scale_back);
  if (layout.pivot_bits == 7) return Decoder<128>(payload, layout, out).Run(range, scale_back);
  Decoder<64>(payload, layout, out).Run(range, scale_back);
}

}  // namespace longhaul::codec::tah::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::tah::cpu {

HWY_EXPORT(SurveyOnTarget);
HWY_EXPORT(MarkOnTarget);
HWY_EXPORT(EncodeOnTarget);
HWY_EXPORT(DecodeOnTarget);

uint32_t SurveyRange(const TensorView& in, const Layout& layout, const TileRange& range,
                     int32_t* keys) {
  return HWY_DYNAMIC_DISPATCH(SurveyOnTarget)(in, layout, range, keys);
}

void MarkFours(const int32_t* keys, uint64_t count, uint64_t fours, std::byte* bits) {
  HWY_DYNAMIC_DISPATCH(MarkOnTarget)(keys, count, fours, bits);
}

uint64_t EncodeRange(const TensorView& in, const Params& params, const Layout& layout,
                     const RoundingNoise& noise, const TileRange& range, int exponent,
                     std::byte* payload) {
  return HWY_DYNAMIC_DISPATCH(EncodeOnTarget)(in, params, layout, noise, range, exponent, payload);
}

void DecodeRange(const std::byte* payload, const Layout& layout, const TileRange& range,
                 int exponent, const MutableTensorView& out) {
  HWY_DYNAMIC_DISPATCH(DecodeOnTarget)(payload, layout, range, exponent, out);
}

}  // namespace longhaul::codec::tah::cpu
#endif  // HWY_ONCE
