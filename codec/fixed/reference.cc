#include "codec/fixed/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/half_reference.h"

namespace longhaul::codec::fixed {
namespace {

struct Tiling {
  Tiling(const Shape& shape, const Params& params)
      : tile(params.tile),
        channels(shape.channels),
        per_token((shape.channels + tile - 1) / tile),
        per_sample(shape.tokens * per_token) {}
  // Element k of the sample's tile t, zero where padded.
  double At(std::span<const double> sample, uint64_t t, uint64_t k) const {
    const uint64_t channel = t % per_token * tile + k;
    return channel < channels ? sample[t / per_token * channels + channel] : 0.0;
  }
  uint64_t tile, channels, per_token, per_sample;
};

int ExponentOf(std::span<const double> sample, const Tiling& tiling) {
  double largest = 0;
  for (uint64_t t = 0; t < tiling.per_sample; ++t) {
    double tile_largest = 0;
    for (uint64_t k = 0; k < tiling.tile; ++k) {
      const double magnitude = std::fabs(tiling.At(sample, t, k));
      // Keeps infinity once seen, and makes one of a NaN.
      tile_largest = std::isfinite(magnitude) ? std::max(tile_largest, magnitude)
                                              : std::numeric_limits<double>::infinity();
    }
    if (std::isfinite(tile_largest)) largest = std::max(largest, tile_largest);
  }
  return largest == 0 ? 0 : 12 - std::ilogb(largest);
}

// The middle of that of 2^fraction equal parts of [0, 1) in which `number` lies.
double MiddleOf(double number, int fraction) {
  return std::ldexp(std::floor(std::ldexp(number, fraction)) + 0.5, -fraction);
}

ReferenceTile EncodeTile(const std::vector<double>& v, const Params& params, uint64_t first_index,
                         const std::function<double(uint64_t)>& noise) {
  ReferenceTile result;
  result.codes.assign(v.size(), 0);
  double largest = 0;
  for (const double value : v) {
    if (!std::isfinite(value)) result.finite = false;
    largest = std::max(largest, std::fabs(value));
  }
  if (!result.finite) return result;
  const int top = (1 << (params.bits - 1)) - 1;
  const bool stochastic = params.rounding == Rounding::kStochastic;
  result.scale =
      RoundToHalf(largest / top, stochastic ? HalfRounding::kUp : HalfRounding::kNearestEven);
  if (result.scale == 0) return result;
  const int fraction = std::min(16, 23 - static_cast<int>(params.bits));
  for (size_t k = 0; k < v.size(); ++k) {
    const double u = v[k] / result.scale;
    const double rounded =
        stochastic ? std::floor(u + MiddleOf(noise(first_index + k), fraction)) : std::nearbyint(u);
    result.codes[k] = static_cast<int>(std::clamp<double>(rounded, -top, top));
  }
  return result;
}

}  // namespace

ReferenceResult Reference(std::span<const double> x, const Shape& shape, const Params& params,
                          const std::function<double(uint64_t)>& noise) {
  const Tiling tiling(shape, params);
  ReferenceResult result;
  result.decoded.resize(x.size());
  const uint64_t sample_size = uint64_t{shape.tokens} * shape.channels;
  for (uint64_t b = 0; b < shape.samples; ++b) {
    const auto sample = x.subspan(b * sample_size, sample_size);
    const int c = ExponentOf(sample, tiling);
    result.exponents.push_back(c);
    for (uint64_t t = 0; t < tiling.per_sample; ++t) {
      std::vector<double> v(tiling.tile);
      for (uint64_t k = 0; k < tiling.tile; ++k) v[k] = std::ldexp(tiling.At(sample, t, k), c);
      const uint64_t index = (b * tiling.per_sample + t) * tiling.tile;
      result.tiles.push_back(EncodeTile(v, params, index, noise));
      const ReferenceTile& tile = result.tiles.back();
      for (uint64_t k = 0; k < tiling.tile; ++k) {
        const uint64_t channel = t % tiling.per_token * tiling.tile + k;
        if (channel >= shape.channels) break;
        result.decoded[b * sample_size + t / tiling.per_token * shape.channels + channel] =
            tile.finite ? std::ldexp(tile.codes[k] * tile.scale, -c)
                        : std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
  return result;
}

ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params) {
  const auto payload = blob.subspan(kBlobHeaderBytes);
  const auto align = [](uint64_t bytes) { return (bytes + 15) / 16 * 16; };
  const auto u16 = [&](uint64_t offset) {
    return static_cast<unsigned>(payload[offset]) | static_cast<unsigned>(payload[offset + 1]) << 8;
  };
  const Tiling tiling(shape, params);
  const uint64_t tiles = shape.samples * tiling.per_sample;
  const uint64_t scales = align(2 * uint64_t{shape.samples});
  const uint64_t codes = scales + align(2 * tiles);
  ReferenceResult result;
  for (uint64_t b = 0; b < shape.samples; ++b) {
    result.exponents.push_back(static_cast<int16_t>(u16(2 * b)));
  }
  for (uint64_t t = 0; t < tiles; ++t) {
    ReferenceTile tile;
    const unsigned half = u16(scales + 2 * t);
    tile.finite = (half & 0x7c00) != 0x7c00;
    const unsigned exponent = (half >> 10) & 31;
    tile.scale = exponent == 0 ? std::ldexp(half & 1023, -24)
                               : std::ldexp(1024 + (half & 1023), static_cast<int>(exponent) - 25);
    for (uint64_t k = 0; k < tiling.tile; ++k) {
      int code = 0;
      for (unsigned bit = 0; bit < params.bits; ++bit) {
        const uint64_t at = codes + (t * params.bits + bit) * tiling.tile / 8 + k / 8;
        code |= static_cast<int>((static_cast<unsigned>(payload[at]) >> (k % 8)) & 1) << bit;
      }
      tile.codes.push_back(code - (1 << params.bits) / 2);
    }
    result.tiles.push_back(tile);
  }
  return result;
}

}  // namespace longhaul::codec::fixed
