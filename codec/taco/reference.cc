#include "codec/taco/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace longhaul::codec::taco {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Exponent and mantissa bits, the exponent of the smallest normal number, and the largest number.
struct Definition {
  int mantissa, least;
  double largest;
};
Definition DefinitionOf(Format format) {
  if (format == Format::kE4m3) return {3, -6, 448};
  return {2, -14, 57344};
}

// H_B / sqrt(B); H_B[i][j] = (-1)^popcount(i & j).
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

double InFp32(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude < 0x1p-126 || magnitude > std::numeric_limits<float>::max()) return value;
  return static_cast<double>(static_cast<float>(value));
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

ReferenceBlock Compress(const std::vector<double>& g, const Params& params,
                        const Ablation& ablation) {
  const auto size = static_cast<double>(g.size());
  const double root = ablation.transform ? std::sqrt(size) : 1;
  const double q_max = params.format == Format::kInt8 ? 127 : DefinitionOf(params.format).largest;
  ReferenceBlock block;
  double squares = 0;
  for (const double value : g) squares += value * value;
  block.finite = std::isfinite(squares);
  if (!block.finite) return block;
  block.sigma = std::sqrt(squares / size + ablation.epsilon);
  if (ablation.rescale) block.alpha = ablation.tau / block.sigma;
  std::vector<double> z = g;
  for (double& value : z) value *= block.alpha;
  if (ablation.transform) z = Hadamard(z);
  if (ablation.scale) block.s = Largest(z) / q_max;
  for (const double value : z) {
    block.q.push_back(block.s == 0 ? 0 : NearestNumber(params.format, value / block.s));
  }
  block.c = block.s / (block.alpha * root);
  return block;
}

std::vector<double> Decompress(const ReferenceBlock& block, bool transform) {
  std::vector<double> z = block.q;
  for (double& value : z) value *= InFp32(block.s);
  std::vector<double> g = transform ? Hadamard(z) : z;
  for (double& value : g) value /= InFp32(block.alpha);
  return g;
}

std::vector<double> DecompressByC(const ReferenceBlock& block, bool transform) {
  std::vector<double> g = transform ? Hadamard(block.q) : block.q;
  const double root = transform ? std::sqrt(static_cast<double>(block.q.size())) : 1;
  for (double& value : g) value *= root * InFp32(block.c);
  return g;
}

}  // namespace

double NumberOf(Format format, uint8_t code) {
  if (format == Format::kInt8) return static_cast<int8_t>(code);
  const Definition definition = DefinitionOf(format);
  const int exponent = (code & 0x7f) >> definition.mantissa;
  const int mantissa = code & ((1 << definition.mantissa) - 1);
  const double one = std::ldexp(1.0, definition.mantissa);
  const double magnitude = std::ldexp(exponent == 0 ? mantissa / one : 1 + mantissa / one,
                                      definition.least + std::max(exponent - 1, 0));
  if (magnitude > definition.largest) return kNan;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

double NearestNumber(Format format, double value) {
  if (format == Format::kInt8) return std::clamp(std::nearbyint(value), -127.0, 127.0);
  const Definition definition = DefinitionOf(format);
  if (value == 0) return value;
  if (std::fabs(value) >= definition.largest) return std::copysign(definition.largest, value);
  const int exponent = std::max(std::ilogb(value), definition.least);
  const double spacing = std::ldexp(1.0, exponent - definition.mantissa);
  const double nearest = std::nearbyint(value / spacing) * spacing;
  return std::clamp(nearest, -definition.largest, definition.largest);
}

ReferenceResult Reference(std::span<const double> x, const Params& params,
                          const Ablation& ablation) {
  ReferenceResult result;
  for (size_t first = 0; first < x.size(); first += params.block) {
    const size_t count = std::min<size_t>(params.block, x.size() - first);
    const auto of_block = x.subspan(first, count);
    std::vector<double> g(of_block.begin(), of_block.end());
    g.resize(params.block, 0.0);
    const ReferenceBlock& block = result.blocks.emplace_back(Compress(g, params, ablation));
    const auto add = [&](const std::vector<double>& decoded, std::vector<double>* to) {
      for (size_t k = 0; k < count; ++k) to->push_back(block.finite ? decoded[k] : kNan);
    };
    add(Decompress(block, ablation.transform), &result.decoded);
    add(DecompressByC(block, ablation.transform), &result.decoded_by_c);
  }
  return result;
}

std::vector<ReferenceBlock> Unpack(std::span<const std::byte> blob, uint64_t elements,
                                   const Params& params) {
  const auto payload = blob.subspan(kBlobHeaderBytes);
  const uint64_t count = (elements + params.block - 1) / params.block;
  const uint64_t codes = (4 * count + 15) / 16 * 16;
  std::vector<ReferenceBlock> blocks(count);
  for (uint64_t k = 0; k < count; ++k) {
    float c = 0;
    std::memcpy(&c, payload.data() + 4 * k, sizeof(c));
    blocks[k].c = c;
    blocks[k].finite = std::isfinite(c);
    for (uint64_t i = 0; i < params.block; ++i) {
      const auto code = static_cast<uint8_t>(payload[codes + k * params.block + i]);
      blocks[k].q.push_back(NumberOf(params.format, code));
    }
  }
  return blocks;
}

}  // namespace longhaul::codec::taco
