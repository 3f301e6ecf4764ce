#include "codec/tah/cpu/kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/planes.h"
#include "codec/tah/cpu/entropy.h"
#include "codec/tah/cpu/quantize.h"
#include "codec/tile.h"

namespace longhaul::codec::tah::cpu {
namespace {

bool GetBit(const std::byte* bits, uint64_t index) {
  return ((static_cast<uint32_t>(bits[index / 8]) >> (index % 8)) & 1) != 0;
}

void SetBit(std::byte* bits, uint64_t index) {
  bits[index / 8] |= std::byte{1} << (index % 8);
}

// `width` <= 8 bits at bit position `first`; into zeros.
void PutBits(std::byte* bits, uint64_t first, uint32_t width, uint32_t value) {
  const uint32_t shifted = value << (first % 8);
  bits[first / 8] |= static_cast<std::byte>(shifted & 0xff);
  if (first % 8 + width > 8) bits[first / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
}

uint32_t TakeBits(const std::byte* bits, uint64_t first, uint32_t width) {
  auto value = static_cast<uint32_t>(bits[first / 8]);
  if (first % 8 + width > 8) value |= static_cast<uint32_t>(bits[first / 8 + 1]) << 8;
  return (value >> (first % 8)) & ((1u << width) - 1);
}

// The place of a tile in a tensor.
struct TilePlace {
  uint64_t offset = 0;  // of its first element
  int count = 0;        // elements that are not padding
};

template <int kTile>
TilePlace Place(const Shape& shape, const Layout& layout, uint32_t sample, uint64_t tile) {
  const uint64_t token = tile / layout.token_tiles;
  const uint64_t channel = tile % layout.token_tiles * kTile;
  return {(sample * uint64_t{shape.tokens} + token) * shape.channels + channel,
          static_cast<int>(std::min<uint64_t>(kTile, shape.channels - channel))};
}

// Calls function(alloc, first tile, tiles) for the allocation tiles of a sample in their order.
template <class Function>
void ForEachAlloc(const Shape& shape, const Layout& layout, Function&& function) {
  uint64_t alloc = 0;
  for (uint64_t token = 0; token < shape.tokens; ++token) {
    for (uint64_t first = 0; first < layout.token_tiles; first += layout.alloc_tiles, ++alloc) {
      function(alloc, token * layout.token_tiles + first,
               std::min(layout.alloc_tiles, layout.token_tiles - first));
    }
  }
}

template <int kTile>
class Encoder {
 public:
  Encoder(const TensorView& in, const Params& params, const Context& context, std::byte* scratch,
          std::byte* payload)
      : in_(in),
        params_(params),
        layout_(MakeLayout(in.shape, params)),
        noise_(context),
        keys_(reinterpret_cast<uint64_t*>(scratch)),
        payload_(payload) {}

  uint64_t Run() {
    ZeroGaps();
    uint64_t nonfinite = 0;
    for (uint32_t sample = 0; sample < in_.shape.samples; ++sample) {
      largest_ = 0;
      const bool choose = layout_.fours > 0 && layout_.fours < layout_.allocs;
      ForEachAlloc(in_.shape, layout_, [&](uint64_t alloc, uint64_t first, uint64_t tiles) {
        const float entropy = Survey(sample, first, tiles, choose);
        if (choose) keys_[alloc] = SortKey(entropy, static_cast<uint32_t>(alloc));
      });
      Allocate(sample, choose);
      nonfinite += EncodeSample(sample);
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

  void Load(uint32_t sample, uint64_t tile, float* values) const {
    const TilePlace place = Place<kTile>(in_.shape, layout_, sample, tile);
    LoadTile<kTile>(in_, place.offset, place.count, values);
  }

  // Steps 0 and 1 for an allocation tile: its entropy, if asked for, and largest_.
  float Survey(uint32_t sample, uint64_t first, uint64_t tiles, bool entropy_wanted) {
    alignas(64) float values[kTile];
    uint32_t alloc_largest = 0;
    for (uint64_t tile = first; tile < first + tiles; ++tile) {
      Load(sample, tile, values);
      const uint32_t tile_largest = LargestMagnitude<kTile>(values);
      alloc_largest = std::max(alloc_largest, tile_largest);
      if (tile_largest < kF32Infinity) largest_ = std::max(largest_, tile_largest);
    }
    if (!entropy_wanted || alloc_largest == 0) return 0;
    if (alloc_largest >= kF32Infinity) return -std::numeric_limits<float>::infinity();
    const ScaleUp scale(1 - FloorLog2(alloc_largest));
    EntropySums sums;
    for (uint64_t tile = first; tile < first + tiles; ++tile) {
      if (tiles > 1) Load(sample, tile, values);
      AddTile<kTile>(values, scale, &sums);
    }
    return Entropy(sums);
  }

  // Step 2: the precision bits.
  void Allocate(uint32_t sample, bool choose) {
    std::byte* bits = payload_ + layout_.precision + sample * layout_.precision_bytes;
    if (!choose) {
      for (uint64_t alloc = 0; alloc < layout_.fours; ++alloc) SetBit(bits, alloc);
      return;
    }
    std::nth_element(keys_, keys_ + layout_.fours, keys_ + layout_.allocs);
    for (uint64_t rank = 0; rank < layout_.fours; ++rank) {
      SetBit(bits, keys_[rank] & 0xffffffff);
    }
  }

  uint64_t EncodeSample(uint32_t sample) {
    const int exponent = SampleExponent(largest_, TopExponent(params_));
    StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)),
             payload_ + layout_.exponents + 2 * uint64_t{sample});
    const ScaleUp scale_up(exponent);
    const std::byte* precision = payload_ + layout_.precision + sample * layout_.precision_bytes;
    const uint64_t slot_bytes = layout_.alloc_tiles * layout_.plane_bytes;
    std::byte* slot = payload_ + layout_.fourth_bits + sample * layout_.fours * slot_bytes;
    uint64_t nonfinite = 0;
    ForEachAlloc(in_.shape, layout_, [&](uint64_t alloc, uint64_t first, uint64_t tiles) {
      const bool four = GetBit(precision, alloc);
      if (four && tiles < layout_.alloc_tiles) std::memset(slot, 0, slot_bytes);
      for (uint64_t j = 0; j < tiles; ++j) {
        std::byte* fourth = four ? slot + j * layout_.plane_bytes : nullptr;
        nonfinite += EncodeTile(sample, first + j, scale_up, fourth) ? 0 : 1;
      }
      if (four) slot += slot_bytes;
    });
    return nonfinite;
  }

  // Steps 3 to 5. `fourth`: where plane 3 goes, null for a tile of 3 bits. False for a tile that is
  // not finite.
  bool EncodeTile(uint32_t sample, uint64_t tile, const ScaleUp& scale_up, std::byte* fourth) {
    alignas(64) float values[kTile];
    alignas(64) uint8_t codes[kTile] = {};
    Load(sample, tile, values);
    const bool finite = LargestMagnitude<kTile>(values) < kF32Infinity;
    const uint64_t tensor_tile = sample * layout_.tiles + tile;
    TileMeta meta;
    if (finite) {
      for (int k = 0; k < kTile; ++k) values[k] = scale_up(values[k]);
      const bool transformed = TransformOutlier<kTile>(params_.tau, values, &meta.pivot);
      alignas(64) float noise[kTile];
      const bool stochastic = params_.rounding == Rounding::kStochastic;
      if (stochastic) noise_.Fill(tensor_tile * kTile, kTile, noise);
      Quantize<kTile>(values, fourth != nullptr ? 4 : 3, stochastic ? noise : nullptr, &meta,
                      codes);
      if (transformed) meta.scale |= kTransformed;
    } else {
      meta.scale = kF16Nan;
    }
    StoreU16(meta.scale, payload_ + layout_.scales + 2 * tensor_tile);
    StoreU16(meta.zero, payload_ + layout_.zeros + 2 * tensor_tile);
    PutBits(payload_ + layout_.pivots + sample * layout_.pivot_bytes, tile * layout_.pivot_bits,
            layout_.pivot_bits, meta.pivot);
    std::byte* planes = payload_ + layout_.codes + tensor_tile * 3 * layout_.plane_bytes;
    for (int bit = 0; bit < 3; ++bit) PackPlane<kTile>(codes, bit, planes + bit * (kTile / 8));
    if (fourth != nullptr) PackPlane<kTile>(codes, 3, fourth);
    return finite;
  }

  const TensorView& in_;
  const Params& params_;
  const Layout layout_;
  const RoundingNoise noise_;
  uint64_t* const keys_;
  std::byte* const payload_;
  uint32_t largest_ = 0;  // magnitude bits, over the finite tiles of the sample
};

template <int kTile>
class Decoder {
 public:
  Decoder(const std::byte* payload, const Params& params, const MutableTensorView& out)
      : payload_(payload), layout_(MakeLayout(out.shape, params)), out_(out) {}

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
    const std::byte* precision = payload_ + layout_.precision + sample * layout_.precision_bytes;
    if (!PrecisionFits(precision)) {
      return absl::InvalidArgumentError(
          "the blob's precision bits do not mark as many tiles as its parameters and shape say");
    }
    const ScaleBack scale_back(exponent);
    const uint64_t slot_bytes = layout_.alloc_tiles * layout_.plane_bytes;
    const std::byte* slot = payload_ + layout_.fourth_bits + sample * layout_.fours * slot_bytes;
    ForEachAlloc(out_.shape, layout_, [&](uint64_t alloc, uint64_t first, uint64_t tiles) {
      const bool four = GetBit(precision, alloc);
      for (uint64_t j = 0; j < tiles; ++j) {
        DecodeTile(sample, first + j, scale_back, four ? slot + j * layout_.plane_bytes : nullptr);
      }
      if (four) slot += slot_bytes;
    });
    return absl::OkStatus();
  }

  // As many bits as the layout has room for, and none behind the last allocation tile.
  bool PrecisionFits(const std::byte* precision) const {
    uint64_t fours = 0;
    for (uint64_t first = 0; first < layout_.precision_bytes * 8; first += 64) {
      uint64_t word = 0;
      std::memcpy(&word, precision + first / 8, 8);
      const uint64_t used = layout_.allocs - first;
      if (used < 64 && (word >> used) != 0) return false;
      fours += static_cast<uint64_t>(std::popcount(word));
    }
    return fours == layout_.fours;
  }

  void DecodeTile(uint32_t sample, uint64_t tile, const ScaleBack& scale_back,
                  const std::byte* fourth) {
    alignas(64) float values[kTile];
    const uint64_t tensor_tile = sample * layout_.tiles + tile;
    TileMeta meta;
    meta.scale = LoadU16(payload_ + layout_.scales + 2 * tensor_tile);
    meta.zero = LoadU16(payload_ + layout_.zeros + 2 * tensor_tile);
    if ((meta.scale & 0x7c00) == 0x7c00) {
      FillNan<kTile>(values);
    } else {
      if ((meta.scale & kTransformed) != 0) {
        meta.pivot = TakeBits(payload_ + layout_.pivots + sample * layout_.pivot_bytes,
                              tile * layout_.pivot_bits, layout_.pivot_bits);
      }
      alignas(64) uint8_t codes[kTile] = {};
      const std::byte* planes = payload_ + layout_.codes + tensor_tile * 3 * layout_.plane_bytes;
      for (int bit = 0; bit < 3; ++bit) UnpackPlane<kTile>(planes + bit * (kTile / 8), bit, codes);
      if (fourth != nullptr) UnpackPlane<kTile>(fourth, 3, codes);
      Dequantize<kTile>(codes, meta, values);
      for (int k = 0; k < kTile; ++k) values[k] = scale_back(values[k]);
    }
    const TilePlace place = Place<kTile>(out_.shape, layout_, sample, tile);
    StoreTile<kTile>(out_, place.offset, place.count, values);
  }

  const std::byte* const payload_;
  const Layout layout_;
  const MutableTensorView& out_;
};

}  // namespace

uint64_t ScratchBytes(const Layout& layout) {
  return layout.allocs * sizeof(uint64_t);
}

uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* scratch, std::byte* payload) {
  if (params.tile == 32) return Encoder<32>(in, params, context, scratch, payload).Run();
  if (params.tile == 128) return Encoder<128>(in, params, context, scratch, payload).Run();
  return Encoder<64>(in, params, context, scratch, payload).Run();
}

Status Decode(const std::byte* payload, const Params& params, const MutableTensorView& out) {
  if (params.tile == 32) return Decoder<32>(payload, params, out).Run();
  if (params.tile == 128) return Decoder<128>(payload, params, out).Run();
  return Decoder<64>(payload, params, out).Run();
}

}  // namespace longhaul::codec::tah::cpu
