#include "codec/gauss/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "codec/gauss/arithmetic.h"
#include "codec/gauss/levels.h"

namespace longhaul::codec::gauss {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <int kBits>
std::vector<double> StoredLevels() {
  return {std::begin(Levels<kBits>::kPositive), std::end(Levels<kBits>::kPositive)};
}

std::vector<double> LevelsOf(uint32_t bits) {
  switch (bits) {
    case 2:
      return StoredLevels<2>();
    case 3:
      return StoredLevels<3>();
    case 4:
      return StoredLevels<4>();
    case 5:
      return StoredLevels<5>();
    default:
      return StoredLevels<6>();
  }
}

struct Blocking {
  Blocking(const Shape& shape, const Params& params)
      : b(params.block),
        channels(shape.channels),
        n(std::max<uint64_t>(1, (channels + b - 1) / b)) {
    uint64_t rest = channels - (n - 1) * b;
    while (last < rest) last *= 2;
    blocks = shape.tokens * n;
    padded = (n - 1) * b + last;
  }
  uint64_t Size(uint64_t block) const { return block % n + 1 < n ? b : last; }
  // The place of the block's first channel in the sample.
  uint64_t First(uint64_t block) const { return block / n * channels + block % n * b; }
  uint64_t Count(uint64_t block) const { return std::min(b, channels - block % n * b); }
  uint64_t b, channels, n, last = 64, blocks = 0, padded = 0;
};

// H_G / sqrt(G); H_G[i][j] = (-1)^popcount(i & j).
std::vector<double> Hadamard(const std::vector<double>& x) {
  std::vector<double> result(x.size(), 0.0);
  for (size_t j = 0; j < x.size(); ++j) {
    for (size_t i = 0; i < x.size(); ++i) {
      result[j] += std::popcount(i & j) % 2 == 0 ? x[i] : -x[i];
    }
    result[j] /= std::sqrt(static_cast<double>(x.size()));
  }
  return result;
}

void ChangeSigns(std::vector<double>& x) {
  for (size_t k = 0; k < x.size(); ++k) {
    if (((kSigns[k / 32] >> (k % 32)) & 1) != 0) x[k] = -x[k];
  }
}

double RootMeanSquare(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

// q; nothing for a block of zeros or one that is not finite (NaN or infinity in its rms).
std::optional<int> QuarterOctaves(double rms) {
  if (rms == 0 || !std::isfinite(rms)) return std::nullopt;
  return static_cast<int>(std::nearbyint(4 * std::log2(rms)));
}

int CodeOf(double u, const std::vector<double>& levels) {
  int j = 0;
  while (j + 1 < static_cast<int>(levels.size()) &&
         std::fabs(u) >=
             (levels[static_cast<size_t>(j)] + levels[static_cast<size_t>(j) + 1]) / 2) {
    ++j;
  }
  return std::signbit(u) ? -1 - j : j;
}

double LevelOf(int code, const std::vector<double>& levels) {
  return code < 0 ? -levels[static_cast<size_t>(-1 - code)] : levels[static_cast<size_t>(code)];
}

}  // namespace

ReferenceResult Reference(std::span<const double> x, const Shape& shape, const Params& params) {
  const Blocking blocking(shape, params);
  const std::vector<double> levels = LevelsOf(params.bits);
  const uint64_t sample_size = uint64_t{shape.tokens} * shape.channels;
  ReferenceResult result;
  result.decoded.resize(x.size());
  for (uint64_t sample = 0; sample < shape.samples; ++sample) {
    std::vector<std::vector<double>> blocks;
    std::vector<std::optional<int>> indexes;
    std::optional<int> largest;
    for (uint64_t block = 0; block < blocking.blocks; ++block) {
      const double* first = &x[sample * sample_size + blocking.First(block)];
      std::vector<double>& values = blocks.emplace_back(first, first + blocking.Count(block));
      values.resize(blocking.Size(block), 0.0);
      const std::optional<int> q = indexes.emplace_back(QuarterOctaves(RootMeanSquare(values)));
      if (q.has_value()) largest = std::max(largest.value_or(*q), *q);
    }
    const int exponent = static_cast<int>(std::floor(largest.value_or(0) / 4.0));
    result.exponents.push_back(exponent);
    for (uint64_t block = 0; block < blocking.blocks; ++block) {
      ReferenceBlock stored;
      std::vector<double> decoded(blocks[block].size(), 0.0);
      if (!std::isfinite(RootMeanSquare(blocks[block]))) {
        stored.byte = 255;
        std::fill(decoded.begin(), decoded.end(), kNan);
      } else if (indexes[block].has_value()) {
        stored.byte = std::max(0, *indexes[block] - 4 * exponent + 251);
      }
      if (stored.byte > 0 && stored.byte < 255) {
        const double scale = std::exp2(exponent + (stored.byte - 251) / 4.0);
        ChangeSigns(blocks[block]);
        std::vector<double> rotated = Hadamard(blocks[block]);
        for (double& value : rotated) {
          stored.codes.push_back(CodeOf(value / scale, levels));
          value = LevelOf(stored.codes.back(), levels) * scale;
        }
        decoded = Hadamard(rotated);
        ChangeSigns(decoded);
      }
      std::copy_n(
          decoded.begin(), blocking.Count(block),
          result.decoded.begin() + static_cast<long>(sample * sample_size + blocking.First(block)));
      result.blocks.push_back(std::move(stored));
    }
  }
  return result;
}

ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params) {
  const auto payload = blob.subspan(kBlobHeaderBytes);
  const auto align = [](uint64_t bytes) { return (bytes + 15) / 16 * 16; };
  const Blocking blocking(shape, params);
  const uint64_t scales = align(2 * uint64_t{shape.samples});
  const uint64_t codes = scales + align(shape.samples * blocking.blocks);
  ReferenceResult result;
  for (uint64_t sample = 0; sample < shape.samples; ++sample) {
    result.exponents.push_back(
        static_cast<int16_t>(static_cast<unsigned>(payload[2 * sample]) |
                             static_cast<unsigned>(payload[2 * sample + 1]) << 8));
    for (uint64_t block = 0; block < blocking.blocks; ++block) {
      ReferenceBlock stored;
      stored.byte = static_cast<int>(payload[scales + sample * blocking.blocks + block]);
      const uint64_t size = blocking.Size(block);
      const uint64_t token = sample * shape.tokens + block / blocking.n;
      // Elements before this block's first, padding included.
      const uint64_t before = token * blocking.padded + block % blocking.n * blocking.b;
      for (uint64_t k = 0; k < size && stored.byte > 0 && stored.byte < 255; ++k) {
        const auto bit_at = [&](uint64_t plane) {
          const uint64_t at = codes + (before * params.bits + plane * size) / 8 + k / 8;
          return static_cast<int>((static_cast<unsigned>(payload[at]) >> (k % 8)) & 1);
        };
        int code = 0;
        for (uint64_t plane = 0; plane + 1 < params.bits; ++plane) code |= bit_at(plane) << plane;
        stored.codes.push_back(bit_at(params.bits - 1) != 0 ? -1 - code : code);
      }
      result.blocks.push_back(std::move(stored));
    }
  }
  return result;
}

std::vector<double> LloydMax(uint32_t bits) {
  // Sums over a fine grid of midpoints: the mass and the first moment up to each grid point.
  constexpr double kEnd = 9;
  constexpr int kCells = 1 << 20;
  constexpr double kWidth = kEnd / kCells;
  std::vector<double> mass(kCells + 1, 0.0);
  std::vector<double> moment(kCells + 1, 0.0);
  for (int k = 0; k < kCells; ++k) {
    const double x = (k + 0.5) * kWidth;
    const double density = std::exp(-x * x / 2);
    mass[static_cast<size_t>(k) + 1] = mass[static_cast<size_t>(k)] + density;
    moment[static_cast<size_t>(k) + 1] = moment[static_cast<size_t>(k)] + density * x;
  }
  const auto at = [&](const std::vector<double>& sums, double x) {
    const double place = std::min(x / kWidth, kCells - 1e-6);
    const auto cell = static_cast<size_t>(place);
    return sums[cell] + (sums[cell + 1] - sums[cell]) * (place - static_cast<double>(cell));
  };
  const size_t n = size_t{1} << (bits - 1);
  std::vector<double> levels(n);
  for (size_t j = 0; j < n; ++j)
    levels[j] = (static_cast<double>(j) + 0.5) * 4 / static_cast<double>(n);
  for (double change = 1; change > 1e-13;) {
    change = 0;
    double low = 0;
    for (size_t j = 0; j < n; ++j) {
      const double high = j + 1 < n ? (levels[j] + levels[j + 1]) / 2 : kEnd;
      const double mean = (at(moment, high) - at(moment, low)) / (at(mass, high) - at(mass, low));
      low = high;
      change = std::max(change, std::fabs(mean - levels[j]));
      levels[j] = mean;
    }
  }
  return levels;
}

}  // namespace longhaul::codec::gauss
