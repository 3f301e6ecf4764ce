// One tensor teaches the tables (format.h).
//
// Threads: as the tables'.
#pragma once

#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "codec/predict/format.h"
#include "codec/predict/tables.h"

namespace longhaul::codec::predict::cpu {

// The row of the pair that token `index` ends.
uint32_t PairOf(std::span<const uint32_t> ids, const Shape& shape, const Params& params,
                uint64_t index);

struct Lesson {
  const Shape& shape;
  const Params& params;
  std::span<const uint32_t> ids;
  const float* decoded;              // x'
  std::span<const uint8_t> teaches;  // a flag a token
};
// `keys`: scratch, one a token; `sum`: one a channel.
void Learn(const Lesson& lesson, std::span<uint64_t> keys, float* sum, Tables* tables);

}  // namespace longhaul::codec::predict::cpu
