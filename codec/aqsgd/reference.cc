#include "codec/aqsgd/reference.h"

#include <algorithm>
#include <cmath>

#include "codec/half_reference.h"

namespace longhaul::codec::aqsgd {
namespace {

double F32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

double Half(double value) {
  return RoundToHalf(value, HalfRounding::kNearestEven);
}

// 2^result brings `largest` into [2^12, 2^13).
int ToTwelve(double largest) {
  return largest == 0 ? 0 : 12 - std::ilogb(largest);
}

// d of a sample and what is known of it.
struct Difference {
  std::vector<double> d;
  std::vector<double> largest;  // by channel
  int exponent = 0;
};

Difference DifferenceOf(std::span<const float> sample, uint64_t channels,
                        const ReferenceMessage& message) {
  Difference result;
  result.largest.assign(channels, 0);
  double largest = 0;
  for (size_t k = 0; k < sample.size(); ++k) {
    const double v = F32(std::ldexp(double{sample[k]}, message.exponent));
    result.d.push_back(F32(v - message.elements[k]));
    largest = std::max(largest, std::fabs(result.d.back()));
    double& channel = result.largest[k % channels];
    channel = std::max(channel, std::fabs(result.d.back()));
  }
  result.exponent = std::min(ToTwelve(largest), 40);
  for (double& channel : result.largest) channel = std::ldexp(channel, result.exponent);
  return result;
}

double Saturate(double value) {
  return std::clamp(value, -65504.0, 65504.0);
}

double HalfOf(unsigned bits) {
  const int exponent = static_cast<int>((bits >> 10) & 31);
  const int fraction = static_cast<int>(bits & 1023);
  if (exponent == 31) return std::nan("");
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

ReferenceResult Reference(std::span<const float> x, const Shape& shape, const Params& params,
                          bool remembers,
                          const std::vector<std::optional<ReferenceMessage>>& messages) {
  const uint64_t size = uint64_t{shape.tokens} * shape.channels;
  const int top = (1 << (params.bits - 1)) - 1;
  ReferenceResult result;
  std::vector<Difference> differences(shape.samples);
  for (uint64_t b = 0; b < shape.samples; ++b) {
    ReferenceSample& sample = result.samples.emplace_back();
    const auto values = x.subspan(b * size, size);
    double largest = 0;
    bool finite = true;
    for (const float value : values) {
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(double{value}));
      finite = finite && std::isfinite(value);
    }
    const auto& message = messages[b];
    const double scaled = message ? std::ldexp(largest, message->exponent) : 0;
    sample.exponent = ToTwelve(largest);
    if (!remembers || !finite) {
      sample.kind = Kind::kTransient;
    } else if (message && (largest == 0 || (scaled >= 16 && scaled < 32768))) {
      sample.kind = Kind::kDifference;
      differences[b] = DifferenceOf(values, shape.channels, *message);
      sample.exponent = differences[b].exponent;
      result.scales.resize(shape.channels);
      for (uint64_t c = 0; c < shape.channels; ++c) {
        result.scales[c] = std::max(result.scales[c], differences[b].largest[c]);
      }
    } else {
      sample.kind = Kind::kStored;
    }
  }
  for (double& scale : result.scales) scale = Half(F32(scale / top));
  for (uint64_t b = 0; b < shape.samples; ++b) {
    ReferenceSample& sample = result.samples[b];
    const auto values = x.subspan(b * size, size);
    if (sample.kind != Kind::kDifference) {
      for (const float value : values) {
        sample.whole.push_back(std::isfinite(value)
                                   ? Half(F32(std::ldexp(double{value}, sample.exponent)))
                                   : std::nan(""));
        sample.decoded.push_back(std::ldexp(sample.whole.back(), -sample.exponent));
      }
      sample.message = {sample.exponent, sample.whole};
      continue;
    }
    const ReferenceMessage& message = *messages[b];
    sample.message.exponent = message.exponent;
    for (uint64_t k = 0; k < size; ++k) {
      const double scale = result.scales[k % shape.channels];
      const double u =
          scale == 0 ? 0 : F32(std::ldexp(differences[b].d[k], sample.exponent) / scale);
      const auto q = static_cast<int>(std::clamp<double>(std::nearbyint(u), -top, top));
      sample.codes.push_back(q);
      const double change = std::ldexp(q * scale, -sample.exponent);
      sample.message.elements.push_back(Half(Saturate(F32(message.elements[k] + change))));
      sample.decoded.push_back(std::ldexp(sample.message.elements.back(), -message.exponent));
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
  const uint64_t kinds = 2 * align(8 * uint64_t{shape.samples});
  const uint64_t exponents = kinds + align(shape.samples);
  uint64_t at = exponents + align(2 * uint64_t{shape.samples});
  ReferenceResult result;
  for (uint64_t b = 0; b < shape.samples; ++b) {
    ReferenceSample& sample = result.samples.emplace_back();
    sample.kind = static_cast<Kind>(payload[kinds + b]);
    sample.exponent = static_cast<int16_t>(u16(exponents + 2 * b));
    if (sample.kind == Kind::kDifference) result.scales.resize(shape.channels);
  }
  for (size_t c = 0; c < result.scales.size(); ++c) result.scales[c] = HalfOf(u16(at + 2 * c));
  if (!result.scales.empty()) at += align(2 * uint64_t{shape.channels});
  const uint64_t tiles = (uint64_t{shape.channels} + 63) / 64;
  for (ReferenceSample& sample : result.samples) {
    for (uint64_t token = 0; token < shape.tokens; ++token) {
      for (uint64_t c = 0; c < shape.channels; ++c) {
        if (sample.kind != Kind::kDifference) {
          sample.whole.push_back(HalfOf(u16(at + 2 * (token * shape.channels + c))));
          continue;
        }
        int code = 0;
        for (unsigned bit = 0; bit < params.bits; ++bit) {
          const uint64_t plane = at + ((token * tiles + c / 64) * params.bits + bit) * 8;
          const auto byte = static_cast<unsigned>(payload[plane + c % 64 / 8]);
          code |= static_cast<int>((byte >> (c % 8)) & 1) << bit;
        }
        sample.codes.push_back(code - (1 << params.bits) / 2);
      }
    }
    at += sample.kind == Kind::kDifference ? align(uint64_t{shape.tokens} * tiles * params.bits * 8)
                                           : align(2 * uint64_t{shape.tokens} * shape.channels);
  }
  return result;
}

}  // namespace longhaul::codec::aqsgd
