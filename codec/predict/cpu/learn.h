// Updates the tables with one tensor (format.h).
//
// Threads: those of the tables.
#pragma once

#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "codec/predict/format.h"
#include "codec/predict/tables.h"

namespace longhaul::codec::predict::cpu {

// Returns the row of the pair that ends with token `index`.
uint32_t PairOf(std::span<const uint32_t> ids, const Shape& shape, const Params& params,
                uint64_t index);

struct Lesson {
  const Shape& shape;
  const Params& params;
  std::span<const uint32_t> ids;
  const float* decoded;              // x'
  std::span<const uint8_t> teaches;  // one flag a token
};
// `keys`: scratch, one number a token; `sum`: one a channel.
void Learn(const Lesson& lesson, std::span<uint64_t> keys, float* sum, Tables* tables);

}  // namespace longhaul::codec::predict::cpu
