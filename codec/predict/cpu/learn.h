// Updates the tables with one tensor (format.h).
//
// Threads: calls with the same tables must not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "codec/predict/format.h"
#include "codec/predict/tables.h"

namespace longhaul::codec::predict::cpu {

// Returns the number of a row in the table of pairs: the row of token `index` of the tensor and the
// token before it.
uint32_t PairOf(std::span<const uint32_t> ids, const Shape& shape, const Params& params,
                uint64_t index);

// A tensor from which the tables learn.
struct Lesson {
  const Shape& shape;
  const Params& params;
  std::span<const uint32_t> ids;
  const float* decoded;              // x'
  std::span<const uint8_t> teaches;  // for each token 1 if the tables learn from it, else 0
};
// Returns how many floats Learn needs as `sums`.
constexpr uint64_t SumsFor(uint32_t channels) {
  return uint64_t{kMeanParts} * channels;
}
// Updates the tables and their check. Scratch memory: `keys` has a number for each token of the
// tensor, `sums` has SumsFor floats.
void Learn(const Lesson& lesson, std::span<uint64_t> keys, float* sums, Tables* tables);

}  // namespace longhaul::codec::predict::cpu
