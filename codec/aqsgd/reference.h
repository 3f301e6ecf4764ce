// For tests: aqsgd in double precision, by the definition in format.h. Results are rounded to fp32
// where format.h rounds them, so that the codes agree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/aqsgd/format.h"

namespace longhaul::codec::aqsgd {

struct ReferenceMessage {
  int exponent = 0;
  std::vector<double> elements;  // times 2^exponent
  friend bool operator==(const ReferenceMessage&, const ReferenceMessage&) = default;
};

struct ReferenceSample {
  Kind kind = Kind::kTransient;
  int exponent = 0;             // c of a whole sample, g of a difference
  std::vector<double> whole;    // h, NaN if not finite; empty for a difference
  std::vector<int> codes;       // q, tokens x channels; empty for a whole sample
  std::vector<double> decoded;  // elements
  ReferenceMessage message;     // the record after this tensor, if the sample has one then
};

struct ReferenceResult {
  std::vector<double> scales;  // by channel; empty without differences
  std::vector<ReferenceSample> samples;
};

// `messages`: each sample's record before this tensor, if any. `remembers`: the samples have ids.
ReferenceResult Reference(std::span<const float> x, const Shape& shape, const Params& params,
                          bool remembers,
                          const std::vector<std::optional<ReferenceMessage>>& messages);

// Reads the samples of a blob bit by bit, by format.h. Does not set `decoded` and `message`.
ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params);

}  // namespace longhaul::codec::aqsgd
