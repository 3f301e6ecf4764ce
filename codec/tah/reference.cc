#include "codec/tah/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "codec/half_reference.h"

namespace longhaul::codec::tah {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Tiling {
  Tiling(const Shape& shape, const Params& params)
      : g(params.tile),
        channels(shape.channels),
        n_t((shape.channels + g - 1) / g),
        a_tiles(params.alloc == kWholeToken ? n_t : std::min<uint64_t>(params.alloc / g, n_t)),
        m((n_t + a_tiles - 1) / a_tiles),
        tiles(shape.tokens * n_t),
        allocs(shape.tokens * m),
        n4((params.p_65536 * allocs + 32768) / 65536) {}
  std::vector<double> Alpha(std::span<const double> sample, uint64_t t) const {
    std::vector<double> alpha(g, 0.0);
    for (uint64_t k = 0; k < g; ++k) {
      const uint64_t channel = t % n_t * g + k;
      if (channel < channels) alpha[k] = sample[t / n_t * channels + channel];
    }
    return alpha;
  }
  // The allocation tile of a tile, and the tile's place in it.
  uint64_t AllocOf(uint64_t t) const { return t / n_t * m + t % n_t / a_tiles; }
  uint64_t PlaceOf(uint64_t t) const { return t % n_t % a_tiles; }
  uint64_t g, channels, n_t, a_tiles, m, tiles, allocs, n4;
};

bool Finite(const std::vector<double>& alpha) {
  return std::all_of(alpha.begin(), alpha.end(), [](double a) { return std::isfinite(a); });
}

double Largest(const std::vector<double>& alpha) {
  double largest = 0;
  for (const double a : alpha) largest = std::max(largest, std::fabs(a));
  return largest;
}

// Equations 1 and 2 with the minus sign that the text means.
double EntropyOf(const std::vector<double>& alpha) {
  if (!Finite(alpha)) return -kInfinity;
  double l1 = 0;
  for (const double a : alpha) l1 += std::fabs(a);
  if (l1 == 0) return 0;
  double entropy = 0;
  for (const double a : alpha) {
    const double p = std::fabs(a) / l1;
    if (p > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

// Equation 4: swap the pivot with slot 0, then times H_G / sqrt(G); H_G[i][j] = (-1)^popcount(i &
// j).
std::vector<double> Transform(std::vector<double> alpha, uint32_t d) {
  std::swap(alpha[0], alpha[d]);
  std::vector<double> hat(alpha.size(), 0.0);
  for (size_t j = 0; j < alpha.size(); ++j) {
    for (size_t i = 0; i < alpha.size(); ++i) {
      hat[j] += std::popcount(i & j) % 2 == 0 ? alpha[i] : -alpha[i];
    }
    hat[j] /= std::sqrt(static_cast<double>(alpha.size()));
  }
  return hat;
}

std::vector<double> InverseTransform(const std::vector<double>& hat, uint32_t d) {
  std::vector<double> alpha = Transform(hat, 0);
  std::swap(alpha[0], alpha[d]);
  return alpha;
}

ReferenceTile EncodeTile(std::vector<double> alpha, int bits, const Params& params, uint64_t index,
                         const std::function<double(uint64_t)>& noise, bool swap_pivot) {
  ReferenceTile tile;
  tile.bits = bits;
  tile.codes.assign(alpha.size(), 0);
  tile.finite = Finite(alpha);
  if (!tile.finite) return tile;
  const double alpha1 = Largest(alpha);
  uint32_t d = 0;
  while (std::fabs(alpha[d]) != alpha1) ++d;
  double alpha2 = 0;
  for (uint32_t k = 0; k < alpha.size(); ++k) {
    if (k != d) alpha2 = std::max(alpha2, std::fabs(alpha[k]));
  }
  if (alpha1 > static_cast<double>(params.tau) * alpha2) {
    tile.transformed = true;
    tile.pivot = swap_pivot ? d : 0;
    alpha = Transform(alpha, tile.pivot);
  }
  const auto [min, max] = std::minmax_element(alpha.begin(), alpha.end());
  const int top = (1 << bits) - 1;
  const bool stochastic = params.rounding == Rounding::kStochastic;
  tile.zero = RoundToHalf(*min, stochastic ? HalfRounding::kDown : HalfRounding::kNearestEven);
  tile.scale = RoundToHalf((*max - (stochastic ? tile.zero : *min)) / top,
                           stochastic ? HalfRounding::kUp : HalfRounding::kNearestEven);
  if (tile.scale == 0) return tile;
  for (size_t k = 0; k < alpha.size(); ++k) {
    const double u = (alpha[k] - tile.zero) / tile.scale;
    const double code = stochastic ? std::floor(u + noise(index + k)) : std::nearbyint(u);
    tile.codes[k] = static_cast<int>(std::clamp<double>(code, 0, top));
  }
  return tile;
}

std::vector<double> DecodeTile(const ReferenceTile& tile) {
  if (!tile.finite) {
    return std::vector<double>(tile.codes.size(), std::numeric_limits<double>::quiet_NaN());
  }
  std::vector<double> alpha(tile.codes.size());
  for (size_t k = 0; k < alpha.size(); ++k) alpha[k] = tile.zero + tile.scale * tile.codes[k];
  return tile.transformed ? InverseTransform(alpha, tile.pivot) : alpha;
}

void AllotBits(std::span<const double> sample, const Tiling& tiling, ReferenceResult* result) {
  std::vector<std::vector<double>> tildes(tiling.allocs);
  for (uint64_t t = 0; t < tiling.tiles; ++t) {
    const std::vector<double> alpha = tiling.Alpha(sample, t);
    std::vector<double>& tilde = tildes[tiling.AllocOf(t)];
    tilde.insert(tilde.end(), alpha.begin(), alpha.end());
  }
  std::vector<double> entropies;
  for (const std::vector<double>& tilde : tildes) entropies.push_back(EntropyOf(tilde));
  std::vector<uint64_t> order(tiling.allocs);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t i, uint64_t j) { return entropies[i] > entropies[j]; });
  std::vector<bool> fours(tiling.allocs, false);
  for (uint64_t rank = 0; rank < tiling.n4; ++rank) fours[order[rank]] = true;
  result->entropies.insert(result->entropies.end(), entropies.begin(), entropies.end());
  result->fours.insert(result->fours.end(), fours.begin(), fours.end());
}

int ExponentOf(std::span<const double> sample, const Tiling& tiling, const Params& params) {
  double largest = 0;
  for (uint64_t t = 0; t < tiling.tiles; ++t) {
    const std::vector<double> alpha = tiling.Alpha(sample, t);
    if (Finite(alpha)) largest = std::max(largest, Largest(alpha));
  }
  if (largest == 0) return 0;
  return (params.tau < 2 ? 11 : 12) - std::ilogb(largest);
}

double HalfToDouble(unsigned half) {
  const unsigned exponent = (half >> 10) & 31;
  const double magnitude = exponent == 0
                               ? std::ldexp(half & 1023, -24)
                               : std::ldexp(1024 + (half & 1023), static_cast<int>(exponent) - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

ReferenceResult Reference(std::span<const double> x, const Shape& shape, const Params& params,
                          const std::function<double(uint64_t)>& noise,
                          const std::vector<bool>* fours, const Ablation& ablation) {
  const Tiling tiling(shape, params);
  ReferenceResult result;
  result.decoded.resize(x.size());
  const uint64_t sample_size = uint64_t{shape.tokens} * shape.channels;
  for (uint64_t b = 0; b < shape.samples; ++b) {
    const auto sample = x.subspan(b * sample_size, sample_size);
    AllotBits(sample, tiling, &result);
    const int c = ExponentOf(sample, tiling, params);
    result.exponents.push_back(c);
    for (uint64_t t = 0; t < tiling.tiles; ++t) {
      std::vector<double> alpha = tiling.Alpha(sample, t);
      for (double& a : alpha) a = std::ldexp(a, c);
      const uint64_t alloc = b * tiling.allocs + tiling.AllocOf(t);
      const bool four = fours != nullptr ? (*fours)[alloc] : result.fours[alloc];
      result.tiles.push_back(EncodeTile(alpha, ablation.low_bits + (four ? 1 : 0), params,
                                        (b * tiling.tiles + t) * tiling.g, noise,
                                        ablation.swap_pivot));
      const std::vector<double> decoded = DecodeTile(result.tiles.back());
      for (uint64_t k = 0; k < tiling.g; ++k) {
        const uint64_t channel = t % tiling.n_t * tiling.g + k;
        if (channel >= shape.channels) break;
        result.decoded[b * sample_size + t / tiling.n_t * shape.channels + channel] =
            std::ldexp(decoded[k], -c);
      }
    }
  }
  return result;
}

ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params) {
  const auto payload = blob.subspan(kBlobHeaderBytes);
  const auto align = [](uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; };
  const auto bit_at = [&](uint64_t section, uint64_t bit) {
    return ((static_cast<unsigned>(payload[section + bit / 8]) >> (bit % 8)) & 1) != 0;
  };
  const auto u16 = [&](uint64_t offset) {
    return static_cast<unsigned>(payload[offset]) | static_cast<unsigned>(payload[offset + 1]) << 8;
  };
  const Tiling tiling(shape, params);
  const uint64_t b_tiles = shape.samples * tiling.tiles;
  const auto pivot_bits = static_cast<uint64_t>(std::countr_zero(tiling.g));
  const uint64_t pivot_bytes = align((tiling.tiles * pivot_bits + 7) / 8, 8);
  const uint64_t precision_bytes = align((tiling.allocs + 7) / 8, 8);
  const uint64_t scales = align(2 * uint64_t{shape.samples}, 16);
  const uint64_t zeros = scales + align(2 * b_tiles, 16);
  const uint64_t pivots = zeros + align(2 * b_tiles, 16);
  const uint64_t precision = pivots + align(shape.samples * pivot_bytes, 16);
  const uint64_t codes = precision + align(shape.samples * precision_bytes, 16);
  const uint64_t fourth = codes + align(b_tiles * 3 * tiling.g / 8, 16);
  ReferenceResult result;
  for (uint64_t b = 0; b < shape.samples; ++b) {
    result.exponents.push_back(static_cast<int16_t>(u16(2 * b)));
    std::vector<uint64_t> rank(tiling.allocs);
    uint64_t fours = 0;
    for (uint64_t alloc = 0; alloc < tiling.allocs; ++alloc) {
      result.fours.push_back(bit_at(precision + b * precision_bytes, alloc));
      rank[alloc] = fours;
      if (result.fours.back()) ++fours;
    }
    for (uint64_t t = 0; t < tiling.tiles; ++t) {
      const uint64_t tensor_tile = b * tiling.tiles + t;
      const uint64_t alloc = tiling.AllocOf(t);
      ReferenceTile tile;
      const unsigned scale = u16(scales + 2 * tensor_tile);
      const unsigned zero = u16(zeros + 2 * tensor_tile);
      tile.finite = (scale & 0x7c00) != 0x7c00 && (zero & 0x7c00) != 0x7c00;
      tile.transformed = (scale & 0x8000) != 0;
      tile.scale = std::fabs(HalfToDouble(scale));
      tile.zero = HalfToDouble(zero);
      for (uint64_t bit = 0; bit < pivot_bits; ++bit) {
        if (bit_at(pivots + b * pivot_bytes, t * pivot_bits + bit)) tile.pivot |= 1u << bit;
      }
      tile.bits = result.fours[b * tiling.allocs + alloc] ? 4 : 3;
      const uint64_t slot = (b * tiling.n4 + rank[alloc]) * tiling.a_tiles + tiling.PlaceOf(t);
      for (uint64_t k = 0; k < tiling.g; ++k) {
        int code = 0;
        for (uint64_t bit = 0; bit < 3; ++bit) {
          if (bit_at(codes, (tensor_tile * 3 + bit) * tiling.g + k)) code |= 1 << bit;
        }
        if (tile.bits == 4 && bit_at(fourth, slot * tiling.g + k)) code |= 8;
        tile.codes.push_back(code);
      }
      result.tiles.push_back(tile);
    }
  }
  return result;
}

}  // namespace longhaul::codec::tah
