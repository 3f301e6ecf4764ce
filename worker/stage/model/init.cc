#include "worker/stage/model/init.h"

#include <algorithm>
#include <array>
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

// Sine and cosine of 2 pi u, u in [0, 1): Taylor series within an eighth of a turn around the
// nearest quarter turn.
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

// The numbers of one parameter.
class Numbers {
 public:
  Numbers(uint64_t seed, std::string_view name, double standard_deviation)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        stream_(Checksum64(std::as_bytes(std::span(name)))),
        standard_deviation_(standard_deviation) {}

  // From number `first` on.
  void Fill(uint64_t first, std::span<float> values) const {
    while (!values.empty()) {
      const size_t skipped = first % 4, count = std::min(values.size(), 4 - skipped);
      if (count == 4) {
        MakeBlock(first / 4, values.data());
      } else {
        std::array<float, 4> block;
        MakeBlock(first / 4, block.data());
        std::copy_n(block.begin() + skipped, count, values.begin());
      }
      values = values.subspan(count);
      first += count;
    }
  }

 private:
  // Box and Muller make two normal numbers out of two uniform ones.
  void MakeBlock(uint64_t block, float* numbers) const {
    const Philox::Counter random =
        Philox::Generate({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                          static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                         key_);
    for (size_t pair = 0; pair < 2; ++pair) {
      const double radius = standard_deviation_ * std::sqrt(-2.0 * Log(OpenUnit(random[2 * pair])));
      const SinCos angle = SinCosOfTurns(OpenUnit(random[2 * pair + 1]));
      numbers[2 * pair] = static_cast<float>(radius * angle.cos);
      numbers[2 * pair + 1] = static_cast<float>(radius * angle.sin);
    }
  }

  const Philox::Key key_;
  const uint64_t stream_;
  const double standard_deviation_;
};

// `values` are numbers `begin` and the following ones of all that `stretches` have.
void FillPart(const Numbers& numbers, std::span<const model::Stretch> stretches, uint64_t begin,
              std::span<float> values) {
  for (const auto& [first, count] : stretches) {
    if (values.empty()) return;
    if (begin >= count) {
      begin -= count;
      continue;
    }
    const std::span<float> part = values.first(std::min<uint64_t>(values.size(), count - begin));
    numbers.Fill(first + begin, part);
    values = values.subspan(part.size());
    begin = 0;
  }
}

}  // namespace

void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<float> values) {
  const model::Stretch all{0, values.size()};
  FillNormal(seed, name, standard_deviation, std::span(&all, 1), values);
}

void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<const model::Stretch> stretches, std::span<float> values) {
  const Numbers numbers(seed, name, standard_deviation);
  // About 30 ns a number: a large embedding would take one core seconds.
  const size_t most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  const size_t pieces = std::clamp<size_t>(values.size() / kLeastOfAThread, 1, most);
  std::vector<std::jthread> others;
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t begin = values.size() * piece / pieces, end = values.size() * (piece + 1) / pieces;
    const auto fill = [&numbers, stretches, begin, part = values.subspan(begin, end - begin)] {
      FillPart(numbers, stretches, begin, part);
    };
    if (piece + 1 == pieces) {
      fill();
    } else {
      others.emplace_back(fill);
    }
  }
}

}  // namespace longhaul::worker
