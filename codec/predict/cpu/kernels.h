// The arithmetic of predict (format.h) on rows. A row has one number for each channel. All
// instruction sets give the same bits.
//
// Threads: pure functions. Pointers are aligned to their elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::predict::cpu {

// The rows that predict the values of one token: the prediction p is (mean + token) + pair.
struct PredictingRows {
  const float* mean = nullptr;      // of all tokens
  const uint16_t* token = nullptr;  // bf16; null: zeros
  const uint16_t* pair = nullptr;   // bf16; null: zeros
};

// values = values - p. Here and in AddBack, a result that is not finite becomes the NaN 0x7fc00000.
void Subtract(const PredictingRows& rows, size_t channels, float* values);
// values = values + p. Returns true if the tables may learn from the token, because the magnitudes
// of all new values are below kTeachable (arithmetic.h).
bool AddBack(const PredictingRows& rows, size_t channels, float* values);
// Adds values - p to `sum`. If `first`, sets `sum` to values - p. `rows`: what is known without the
// row that learns from `sum`.
void Accumulate(const float* values, const PredictingRows& rows, bool first, size_t channels,
                float* sum);
// sum = sum + values.
void Add(const float* values, size_t channels, float* sum);
// Moves a row of bf16 towards the mean of the m values that Accumulate summed:
// row = row + rate x (sum x inverse - row), where inverse = 1 / m. Returns the sum, modulo 2^32, of
// ChannelWeight x the new value's bits over all channels. The caller multiplies it by RowWeight and
// adds it to the argument `sum` of NextCheck (arithmetic.h).
uint32_t Learn(const float* sum, float inverse, float rate, size_t channels, uint16_t* row);
// The same for the mean over all tokens, which is fp32.
uint32_t LearnMean(const float* sum, float inverse, float rate, size_t channels, float* mean);

}  // namespace longhaul::codec::predict::cpu
