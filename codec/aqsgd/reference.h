// For tests: aqsgd in double precision, by the definition in format.h. Rounds to fp32 where
// format.h does, so that the codes agree.
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
  int exponent = 0;             // the payload's
  std::vector<double> whole;    // h, NaN if not finite
  std::vector<int> codes;       // q, tokens x channels
  std::vector<double> decoded;  // elements
  ReferenceMessage message;     // after this tensor, if the sample has a record
};

struct ReferenceResult {
  std::vector<double> scales;  // by channel; empty without differences
  std::vector<ReferenceSample> samples;
};

// `messages`: the message stored for every sample. `remembers`: the samples have ids.
ReferenceResult Reference(std::span<const float> x, const Shape& shape, const Params& params,
                          bool remembers,
                          const std::vector<std::optional<ReferenceMessage>>& messages);

// Reads the samples of a blob bit by bit, by format.h; without decoded and message.
ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params);

}  // namespace longhaul::codec::aqsgd
