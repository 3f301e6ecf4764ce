// Arithmetic of format.h that CPU and GPU kernels share. Only plain types are used.
#pragma once

#include <cstdint>

#include "codec/mix.h"

namespace longhaul::codec::predict {

enum class Kind : uint8_t { kPlain = 0, kPredicted = 1, kLearned = 2 };

// Bytes before the ids in a payload.
inline constexpr uint64_t kFrontBytes = 16;

// The factors a and b of the hash of pairs.
inline constexpr uint64_t kHashBefore = 0x9e3779b97f4a7c15, kHashToken = 0xc2b2ae3d27d4eb4f;
// Returns h of format.h: the row of the pair of ids (before, token) among 2^log2_pairs rows.
inline constexpr uint32_t PairRow(uint32_t before, uint32_t token, uint32_t log2_pairs) {
  return static_cast<uint32_t>((before * kHashBefore + token * kHashToken) >> (64 - log2_pairs));
}

// The tables learn from a token only if the magnitudes of all its decoded values are below this
// limit. So no sum of values overflows.
inline constexpr float kTeachable = 0x1p64f;

// The largest count of a row. Up to this number floats represent integers exactly.
inline constexpr uint32_t kMostCounted = 1u << 24;
// Returns the new count of a row that learns from `occurrences` tokens of a tensor.
inline constexpr uint32_t AddCount(uint32_t count, uint32_t occurrences) {
  const uint32_t room = kMostCounted - count;
  return count + (occurrences < room ? occurrences : room);
}
// Returns the rate (format.h) of a row that learns from `occurrences` tokens of a tensor. `count`:
// the row's new count. `prior`: 0 for M and rows of tokens. `least`: the codec's parameter rate.
inline constexpr float Rate(uint32_t occurrences, uint32_t count, uint32_t prior, float least) {
  const uint32_t most = occurrences < kMostCounted ? occurrences : kMostCounted;
  const float rate = static_cast<float>(most) / static_cast<float>(count + prior);
  return rate > least ? rate : least;
}

// Number of sums (format.h) that give the mean over all tokens. GPUs compute them side by side.
inline constexpr uint32_t kMeanParts = 32;

// Returns the check (format.h) of tables that have learned nothing.
inline constexpr uint64_t FirstCheck(uint32_t vocabulary, uint32_t channels) {
  return Mix64((uint64_t{vocabulary} << 32) + channels);
}
// Returns the check after a tensor. `check`: the check before the tensor. `sum`: the sum, modulo
// 2^32, of RowWeight x ChannelWeight x the new value's bits over all channels of all rows that the
// tensor updated. Bits: 32 of fp32 in M, 16 of bf16 in other rows.
inline constexpr uint64_t NextCheck(uint64_t check, uint32_t sum) {
  return Mix64((check ^ sum) + kHashBefore);
}
// The weights of the sum of NextCheck. All are odd.
inline constexpr uint32_t kChannelWeight = 0x9e3779b1;
inline constexpr uint32_t ChannelWeight(uint32_t channel) {
  return (2 * channel + 1) * kChannelWeight;
}
// `place`: the row's place among all rows (tables.h).
inline constexpr uint32_t RowWeight(uint64_t place) {
  return static_cast<uint32_t>(Mix64(place)) | 1;
}

}  // namespace longhaul::codec::predict
