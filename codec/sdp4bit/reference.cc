#include "codec/sdp4bit/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace longhaul::codec::sdp4bit::reference {

std::vector<double> Transform(std::span<const float> values) {
  constexpr size_t kPoints = 32;
  std::vector<double> out((values.size() + kPoints - 1) / kPoints * kPoints);
  for (size_t to = 0; to < out.size(); ++to) {
    const size_t block = to / kPoints * kPoints;
    for (size_t from = block; from < std::min(block + kPoints, values.size()); ++from) {
      const bool minus = std::popcount(to % kPoints & from % kPoints) % 2 != 0;
      out[to] += minus ? -double{values[from]} : double{values[from]};
    }
  }
  return out;
}

std::vector<Neighbours> Quantized(std::span<const float> values, uint32_t group) {
  std::vector<Neighbours> out(values.size());
  for (size_t at = 0; at < values.size(); at += group) {
    const auto part = values.subspan(at, std::min<size_t>(group, values.size() - at));
    double largest = 0;
    for (const float value : part) largest = std::max(largest, std::fabs(double{value}));
    const double step = largest / 7;
    for (size_t k = 0; k < part.size(); ++k) {
      const double quotient = step > 0 ? part[k] / step : 0;
      out[at + k] = {std::floor(quotient) * step, std::ceil(quotient) * step, step};
    }
  }
  return out;
}

}  // namespace longhaul::codec::sdp4bit::reference
