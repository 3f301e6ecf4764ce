#include "worker/stage/init.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"

namespace longhaul::worker {
namespace {

constexpr size_t kLeastOfAThread = 1 << 18;
constexpr unsigned kMostThreads = 16;

// libm's log, sin and cos differ in their last bit between versions and instruction sets, so the
// three below use only operations that IEEE 754 defines exactly: + - * / and sqrt. Their error
// (about 1e-15) is far below a float's.

// ln x for normal x > 0, by ln m = 2 atanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)).
double Log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double t = (mantissa - 1.0) / (mantissa + 1.0);
  const double t2 = t * t;
  double series = 0;
  for (int n = 21; n >= 1; n -= 2) series = series * t2 + 1.0 / n;
  return 2.0 * t * series + static_cast<double>(exponent) * 0.6931471805599453;
}

struct SinCos {
  double sin, cos;
};

// Of 2 pi u, u in [0, 1): Taylor series within an eighth of a turn around the nearest quarter turn.
SinCos SinCosOfTurns(double u) {
  const int quarter = (static_cast<int>(u * 8.0) + 1) / 2;
  const double x = (u - quarter * 0.25) * 6.283185307179586;
  const double x2 = x * x;
  double sin = 1, cos = 1;
  for (int n = 16; n >= 2; n -= 2) {
    sin = 1.0 - sin * x2 / (n * (n + 1.0));
    cos = 1.0 - cos * x2 / (n * (n - 1.0));
  }
  sin *= x;
  switch (quarter & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

// In (0, 1): 32 bits, never 0, where the logarithm ends.
double OpenUnit(uint32_t bits) {
  return (bits + 0.5) * (1.0 / 4294967296.0);
}

// Blocks of four numbers from `first_block` on.
void FillBlocks(const Philox::Key& key, uint64_t stream, double standard_deviation,
                uint64_t first_block, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 4) {
    const uint64_t block = first_block + i / 4;
    const Philox::Counter random =
        Philox::Generate({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                         key);
    for (size_t pair = 0; pair < 2; ++pair) {  // Box and Muller: two uniform numbers, two normal.
      const double radius = standard_deviation * std::sqrt(-2.0 * Log(OpenUnit(random[2 * pair])));
      const SinCos angle = SinCosOfTurns(OpenUnit(random[2 * pair + 1]));
      const size_t at = i + 2 * pair;
      if (at < values.size()) values[at] = static_cast<float>(radius * angle.cos);
      if (at + 1 < values.size()) values[at + 1] = static_cast<float>(radius * angle.sin);
    }
  }
}

}  // namespace

void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<float> values) {
  const uint64_t stream = Checksum64(std::as_bytes(std::span(name)));
  const Philox::Key key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  // About 30 ns a number: a large embedding would take one core seconds.
  const size_t most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  const size_t pieces = std::clamp<size_t>(values.size() / kLeastOfAThread, 1, most);
  const size_t blocks_a_piece = (values.size() / 4 + pieces) / pieces;
  std::vector<std::jthread> others;
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t begin = std::min(values.size(), 4 * piece * blocks_a_piece);
    const std::span<float> part =
        values.subspan(begin, std::min(values.size() - begin, 4 * blocks_a_piece));
    const auto fill = [=] { FillBlocks(key, stream, standard_deviation, begin / 4, part); };
    if (piece + 1 == pieces) {
      fill();
    } else {
      others.emplace_back(fill);
    }
  }
}

}  // namespace longhaul::worker
