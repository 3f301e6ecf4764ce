#include "codec/tah/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/tah/cpu/kernels.cc"
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

template <size_t kTile>
class Encoder {
 public:
  Encoder(const TensorView& in, const Params& params, const Context& context, std::byte* scratch,
          std::byte* payload)
      : in_(in),
        params_(params),
        layout_(MakeLayout(in.shape, params)),
        noise_(context),
        keys_(reinterpret_cast<int32_t*>(scratch)),
        payload_(payload),
        reader_(in) {}

  uint64_t Run() {
    ZeroGaps();
    uint64_t nonfinite = 0;
    for (uint32_t sample = 0; sample < in_.shape.samples; ++sample) {
      const bool choose = layout_.fours > 0 && layout_.fours < layout_.allocs;
      const uint32_t largest = Survey(sample, choose);
      Allocate(sample, choose);
      nonfinite += params_.rounding == Rounding::kStochastic ? EncodeSample<true>(sample, largest)
                                                             : EncodeSample<false>(sample, largest);
    }
    return nonfinite;
  }

 private:
  // What is written bit by bit, and the paddings at the sections' ends.
  void ZeroGaps() {
    for (const uint64_t end :
         {layout_.scales, layout_.zeros, layout_.pivots, layout_.fourth_bits}) {
      std::memset(payload_ + end - 16, 0, 16);
    }
    std::memset(payload_ + layout_.pivots, 0, layout_.codes - layout_.pivots);
    if (layout_.end > layout_.fourth_bits) std::memset(payload_ + layout_.end - 16, 0, 16);
  }

  // Steps 0 and 1: keys_, if wanted, and the bits of the largest magnitude of the finite tiles.
  uint32_t Survey(uint32_t sample, bool keys_wanted) {
    uint32_t largest = 0;
    if (layout_.alloc_tiles == 1 || !keys_wanted) {
      for (uint64_t first = 0; first < layout_.tiles; first += kBatch) {
        const size_t tiles = std::min<uint64_t>(kBatch, layout_.tiles - first);
        largest = std::max(largest, SurveyTiles(sample, first, tiles, keys_wanted));
      }
      return largest;
    }
    ForEachAlloc(layout_, in_.shape.tokens,
                 [&](uint64_t alloc, uint64_t first, uint64_t tiles) HWY_ATTR {
                   const uint32_t found = SurveyAlloc(sample, alloc, first, tiles);
                   largest = std::max(largest, found);
                 });
    return largest;
  }

  // A batch of tiles, each of them an allocation tile if keys are wanted.
  HWY_INLINE uint32_t SurveyTiles(uint32_t sample, uint64_t first, size_t tiles, bool keys_wanted) {
    const float* const x = reader_.Read(sample, first, tiles);
    ops::PerTile<int32_t> largest;
    ops::LargestMagnitudes<kTile>(x, tiles, &largest);
    if (keys_wanted) {
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

  // Step 2: the precision bits.
  void Allocate(uint32_t sample, bool choose) {
    std::byte* bits = payload_ + layout_.precision + sample * layout_.precision_bytes;
    if (choose) {
      MarkLowest(keys_, layout_.allocs, layout_.fours, bits);
    } else {
      for (uint64_t alloc = 0; alloc < layout_.fours; ++alloc) SetBit(bits, alloc);
    }
  }

  template <bool kStochastic>
  uint64_t EncodeSample(uint32_t sample, uint32_t largest) {
    const int exponent = SampleExponent(largest, TopExponent(params_));
    StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)),
             payload_ + layout_.exponents + 2 * uint64_t{sample});
    FourthBits<std::byte> fourth_bits(layout_, payload_, sample);
    uint64_t nonfinite = 0;
    for (uint64_t first = 0; first < layout_.tiles; first += kBatch) {
      const size_t tiles = std::min<uint64_t>(kBatch, layout_.tiles - first);
      std::byte* fourth[kBatch];
      for (size_t tile = 0; tile < tiles; ++tile) {
        bool partial = false;
        fourth[tile] = fourth_bits.Next(&partial);
        if (partial) std::memset(fourth[tile], 0, fourth_bits.slot_bytes());
      }
      nonfinite += EncodeBatch<kStochastic>(sample, first, tiles, ScaleUp(exponent), fourth);
    }
    return nonfinite;
  }

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
    for (size_t tile = 0; tile < tiles; ++tile) {
      if constexpr (kStochastic)
        ops::FillNoise<kTile>(noise_, (tensor_tile + tile) * kTile, random_);
      QuantizeTile<kTile, kStochastic>(values_ + tile * kTile, meta.origin.at[tile],
                                       meta.divisor.at[tile], meta.top.at[tile], random_,
                                       codes_ + tile * kTile);
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

  const TensorView& in_;
  const Params& params_;
  const Layout layout_;
  const RoundingNoise noise_;
  int32_t* const keys_;
  std::byte* const payload_;
  ops::TileReader<kTile> reader_;
  alignas(64) float values_[kBatch * kTile];
  alignas(64) float random_[kTile];
  alignas(64) uint8_t codes_[kBatch * kTile];
};

template <size_t kTile>
class Decoder {
 public:
  Decoder(const std::byte* payload, const Params& params, const MutableTensorView& out)
      : payload_(payload), layout_(MakeLayout(out.shape, params)), out_(out), writer_(out) {}

  Status Run() {
    for (uint32_t sample = 0; sample < out_.shape.samples; ++sample) {
      LH_RETURN_IF_ERROR(DecodeSample(sample));
    }
    return absl::OkStatus();
  }

 private:
  Status DecodeSample(uint32_t sample) {
    const auto exponent =
        static_cast<int16_t>(LoadU16(payload_ + layout_.exponents + 2 * uint64_t{sample}));
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
    }
    if (!PrecisionFits(layout_, payload_ + layout_.precision + sample * layout_.precision_bytes)) {
      return absl::InvalidArgumentError(
          "the blob's precision bits do not mark as many tiles as its parameters and shape say");
    }
    FourthBits<const std::byte> fourth_bits(layout_, payload_, sample);
    for (uint64_t first = 0; first < layout_.tiles; first += kBatch) {
      const size_t tiles = std::min<uint64_t>(kBatch, layout_.tiles - first);
      for (size_t tile = 0; tile < tiles; ++tile) {
        bool partial = false;
        UnpackCodes(sample * layout_.tiles + first + tile, fourth_bits.Next(&partial),
                    codes_ + tile * kTile);
      }
      DecodeBatch(sample, first, tiles, ScaleBack(exponent));
    }
    return absl::OkStatus();
  }

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
      if ((stored.at[tile] & 0x7c00) == 0x7c00) {
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
  const Layout layout_;
  const MutableTensorView& out_;
  ops::TileWriter<kTile> writer_;
  alignas(64) uint8_t codes_[kBatch * kTile];
};

uint64_t EncodeOnTarget(const TensorView& in, const Params& params, const Context& context,
                        std::byte* scratch, std::byte* payload) {
  if (params.tile == 32) return Encoder<32>(in, params, context, scratch, payload).Run();
  if (params.tile == 128) return Encoder<128>(in, params, context, scratch, payload).Run();
  return Encoder<64>(in, params, context, scratch, payload).Run();
}

Status DecodeOnTarget(const std::byte* payload, const Params& params,
                      const MutableTensorView& out) {
  if (params.tile == 32) return Decoder<32>(payload, params, out).Run();
  if (params.tile == 128) return Decoder<128>(payload, params, out).Run();
  return Decoder<64>(payload, params, out).Run();
}

}  // namespace longhaul::codec::tah::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::tah::cpu {

HWY_EXPORT(EncodeOnTarget);
HWY_EXPORT(DecodeOnTarget);

uint64_t ScratchBytes(const Layout& layout) {
  return layout.allocs * sizeof(int32_t);
}

uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* scratch, std::byte* payload) {
  return HWY_DYNAMIC_DISPATCH(EncodeOnTarget)(in, params, context, scratch, payload);
}

Status Decode(const std::byte* payload, const Params& params, const MutableTensorView& out) {
  return HWY_DYNAMIC_DISPATCH(DecodeOnTarget)(payload, params, out);
}

}  // namespace longhaul::codec::tah::cpu
#endif  // HWY_ONCE
