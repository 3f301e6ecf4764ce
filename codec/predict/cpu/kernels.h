// The arithmetic of predict (format.h) on rows. A row has one number for each channel. All
// instruction sets give the same bits.
//
// Threads: pure functions. Pointers are aligned to their elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::predict::cpu {

// The two rows that predict the values of one token: the prediction p is their sum. `pairs` is null
// if there is no table of pairs.
struct RowPair {
  const float* token = nullptr;
  const float* pairs = nullptr;
};

// values = values - p. Here and in AddBack, a result that is not finite becomes the NaN 0x7fc00000.
void Subtract(const RowPair& rows, size_t channels, float* values);
// values = values + p. Returns true if the tables may learn from the token, because the magnitudes
// of all new values are below kTeachable (arithmetic.h).
bool AddBack(const RowPair& rows, size_t channels, float* values);
// Adds values - minus to `sum`. If `first`, sets `sum` to values - minus. For a row of pairs,
// `minus` is the token's row; for a token's row it is null, which counts as zeros.
void Accumulate(const float* values, const float* minus, bool first, size_t channels, float* sum);
// Moves `row` towards the mean of the m values that Accumulate summed:
// row = row + rate x (sum x inverse - row), where inverse = 1 / m. Returns the sum, modulo 2^32, of
// ChannelWeight x the new value's bits over all channels. The caller multiplies it by RowWeight and
// adds it to the argument `sum` of NextCheck (arithmetic.h).
uint32_t Learn(const float* sum, float inverse, float rate, size_t channels, float* row);

}  // namespace longhaul::codec::predict::cpu
