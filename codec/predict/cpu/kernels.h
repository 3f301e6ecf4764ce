// The arithmetic of predict (format.h), a row of channels at a time. All instruction sets give the
// same bits.
//
// Threads: pure functions. Pointers are aligned to their elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::predict::cpu {

// Two rows that predict one token. `pairs`: null without pairs.
struct RowPair {
  const float* token = nullptr;
  const float* pairs = nullptr;
};

// values = values - p. Here and below a result that is not finite becomes 0x7fc00000.
void Subtract(const RowPair& rows, size_t channels, float* values);
// values = values + p. Returns whether all of them may teach.
bool AddBack(const RowPair& rows, size_t channels, float* values);
// sum = value or, if not `first`, sum + value, where a value is values - minus; `minus` may be
// null.
void Accumulate(const float* values, const float* minus, bool first, size_t channels, float* sum);
// row = row + rate (sum inverse - row). Returns the sum of ChannelWeight x the new values' bits.
uint32_t Learn(const float* sum, float inverse, float rate, size_t channels, float* row);

}  // namespace longhaul::codec::predict::cpu
