#include "codec/fixed/cpu/kernels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/planes.h"
#include "codec/tile.h"

namespace longhaul::codec::fixed::cpu {
namespace {

constexpr int kTopExponent = 12;

template <int kTile>
class Encoder {
 public:
  Encoder(const TensorView& in, const Params& params, const Context& context, std::byte* payload)
      : in_(in),
        layout_(MakeLayout(in.shape, params)),
        bits_(static_cast<int>(params.bits)),
        stochastic_(params.rounding == Rounding::kStochastic),
        noise_(context),
        payload_(payload) {}

  uint64_t Run() {
    std::memset(payload_, 0, layout_.scales);  // the paddings of the sections
    std::memset(payload_ + layout_.codes - 16, 0, 16);
    std::memset(payload_ + layout_.end - 16, 0, 16);
    uint64_t nonfinite = 0;
    for (uint32_t sample = 0; sample < in_.shape.samples; ++sample) {
      const int exponent = SampleExponent(Largest(sample), kTopExponent);
      StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)), payload_ + 2 * sample);
      const ScaleUp scale_up(exponent);
      ForEachTile(sample, [&](uint64_t tile, const float* values) {
        nonfinite += EncodeTile(tile, values, scale_up) ? 0 : 1;
      });
    }
    return nonfinite;
  }

 private:
  template <class Function>
  void ForEachTile(uint32_t sample, Function&& function) {
    alignas(64) float values[kTile];
    const uint64_t tokens = in_.shape.tokens;
    uint64_t tile = sample * tokens * layout_.tiles_per_token;
    for (uint64_t token = sample * tokens; token < (sample + 1) * tokens; ++token) {
      for (uint64_t j = 0; j < layout_.tiles_per_token; ++j, ++tile) {
        const uint64_t channel = j * kTile;
        const int count = static_cast<int>(std::min<uint64_t>(kTile, in_.shape.channels - channel));
        LoadTile<kTile>(in_, token * in_.shape.channels + channel, count, values);
        function(tile, values);
      }
    }
  }

  // Over the sample's finite tiles.
  uint32_t Largest(uint32_t sample) {
    uint32_t largest = 0;
    ForEachTile(sample, [&](uint64_t /*tile*/, const float* values) {
      const uint32_t tile_largest = LargestMagnitude<kTile>(values);
      if (tile_largest < kF32Infinity) largest = std::max(largest, tile_largest);
    });
    return largest;
  }

  // False for a tile that is not finite.
  bool EncodeTile(uint64_t tile, const float* values, const ScaleUp& scale_up) {
    const uint32_t largest = LargestMagnitude<kTile>(values);
    const bool finite = largest < kF32Infinity;
    const int top = (1 << (bits_ - 1)) - 1;
    uint16_t stored = kF16Nan;
    float scale = 0;
    if (finite) {
      const float exact = scale_up(std::bit_cast<float>(largest)) / static_cast<float>(top);
      stored = stochastic_ ? F32ToF16Up(exact) : F32ToF16(exact);
      scale = F16ToF32(stored);
    }
    StoreU16(stored, payload_ + layout_.scales + 2 * tile);
    alignas(64) int32_t codes[kTile] = {};
    if (scale > 0) {
      alignas(64) float scaled[kTile];
      for (int k = 0; k < kTile; ++k) scaled[k] = scale_up(values[k]) / scale;
      stochastic_ ? RoundStochastic(tile, scaled, top, codes) : RoundNearest(scaled, top, codes);
    }
    Pack(codes, payload_ + layout_.codes + tile * layout_.tile_bytes);
    return finite;
  }

  static void RoundNearest(const float* scaled, int top, int32_t* codes) {
    const auto limit = static_cast<float>(top);
    for (int k = 0; k < kTile; ++k) {
      float value = scaled[k];
      value = value < -limit ? -limit : value;
      value = value > limit ? limit : value;
      codes[k] =
          static_cast<int32_t>(std::bit_cast<uint32_t>(value + kRoundMagic) - kRoundMagicBits);
    }
  }

  void RoundStochastic(uint64_t tile, const float* scaled, int top, int32_t* codes) {
    alignas(64) float noise[kTile];
    noise_.Fill(tile * kTile, kTile, noise);
    const auto limit = static_cast<float>(top);
    for (int k = 0; k < kTile; ++k) {
      float value = scaled[k];
      value = value < -limit ? -limit : value;
      value = value > limit ? limit : value;
      const float sum = value + noise[k];
      const auto toward_zero = static_cast<int32_t>(sum);
      const int32_t floor = toward_zero - (static_cast<float>(toward_zero) > sum ? 1 : 0);
      codes[k] = floor > top ? top : floor;
    }
  }

  void Pack(const int32_t* codes, std::byte* out) {
    const int32_t offset = 1 << (bits_ - 1);
    alignas(64) uint8_t low[kTile];
    for (int k = 0; k < kTile; ++k) low[k] = static_cast<uint8_t>(codes[k] + offset);
    for (int bit = 0; bit < std::min(bits_, 8); ++bit) {
      PackPlane<kTile>(low, bit, out + bit * (kTile / 8));
    }
    if (bits_ <= 8) return;
    alignas(64) uint8_t high[kTile];
    for (int k = 0; k < kTile; ++k) high[k] = static_cast<uint8_t>((codes[k] + offset) >> 8);
    for (int bit = 8; bit < bits_; ++bit) {
      PackPlane<kTile>(high, bit - 8, out + bit * (kTile / 8));
    }
  }

  const TensorView& in_;
  const Layout layout_;
  const int bits_;
  const bool stochastic_;
  const RoundingNoise noise_;
  std::byte* const payload_;
};

template <int kTile>
void DecodeTile(const std::byte* planes, int bits, uint16_t stored, const ScaleBack& scale_back,
                float* values) {
  alignas(64) uint8_t low[kTile] = {};
  alignas(64) uint8_t high[kTile] = {};
  for (int bit = 0; bit < std::min(bits, 8); ++bit) {
    UnpackPlane<kTile>(planes + bit * (kTile / 8), bit, low);
  }
  for (int bit = 8; bit < bits; ++bit) {
    UnpackPlane<kTile>(planes + bit * (kTile / 8), bit - 8, high);
  }
  const float scale = F16ToF32(stored);
  const int32_t offset = 1 << (bits - 1);
  for (int k = 0; k < kTile; ++k) {
    const int32_t code = (int32_t{low[k]} | (int32_t{high[k]} << 8)) - offset;
    values[k] = scale_back(static_cast<float>(code) * scale);
  }
}

template <int kTile>
Status DecodeAll(const std::byte* payload, const Params& params, const MutableTensorView& out) {
  const Layout layout = MakeLayout(out.shape, params);
  alignas(64) float values[kTile];
  uint64_t tile = 0;
  for (uint32_t sample = 0; sample < out.shape.samples; ++sample) {
    const auto exponent = static_cast<int16_t>(LoadU16(payload + 2 * sample));
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
    }
    const ScaleBack scale_back(exponent);
    for (uint64_t token = 0; token < out.shape.tokens; ++token) {
      const uint64_t row = (sample * uint64_t{out.shape.tokens} + token) * out.shape.channels;
      for (uint64_t j = 0; j < layout.tiles_per_token; ++j, ++tile) {
        const uint64_t channel = j * kTile;
        const int count = static_cast<int>(std::min<uint64_t>(kTile, out.shape.channels - channel));
        const uint16_t stored = LoadU16(payload + layout.scales + 2 * tile);
        if ((stored & 0x7c00) == 0x7c00) {
          FillNan<kTile>(values);
        } else {
          DecodeTile<kTile>(payload + layout.codes + tile * layout.tile_bytes,
                            static_cast<int>(params.bits), stored, scale_back, values);
        }
        StoreTile<kTile>(out, row + channel, count, values);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* payload) {
  LH_CHECK(params.bits >= kMinBits && params.bits <= kMaxBits, "{} bits", params.bits);
  if (params.tile == 32) return Encoder<32>(in, params, context, payload).Run();
  if (params.tile == 128) return Encoder<128>(in, params, context, payload).Run();
  return Encoder<64>(in, params, context, payload).Run();
}

Status Decode(const std::byte* payload, const Params& params, const MutableTensorView& out) {
  LH_CHECK(params.bits >= kMinBits && params.bits <= kMaxBits, "{} bits", params.bits);
  if (params.tile == 32) return DecodeAll<32>(payload, params, out);
  if (params.tile == 128) return DecodeAll<128>(payload, params, out);
  return DecodeAll<64>(payload, params, out);
}

}  // namespace longhaul::codec::fixed::cpu
