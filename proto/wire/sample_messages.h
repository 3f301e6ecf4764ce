// The bodies of the control messages of a sampling round, in which the pipeline continues texts
// (worker/pipeline/sample_round.h). They follow a tensor header (tensor_header.h). Little-endian.
//
// kSampleRound, from stage to stage down; the round begins:
//   offset size  field
//        0    4  tokens        maximum number of new tokens of a text; 0: the round has no passes
//        4    4  rows          texts, at most kMostRows
//        8    4  stops         tokens that end a text, at most kMostStops
//       12    4  top_k         as in worker/stage/generator.h, like the next three
//       16    8  temperature   float64
//       24    8  top_p         float64
//       32    8  seed
//       40    4  length of each text's prompt in tokens, `rows` times
//             4  each token that ends a text, `stops` times
//
// kSampledTokens, from stage to stage up, after each pass:
//   offset size  field
//        0    4  flags         value 1: the round is over; value 2: logits were not finite
//        4    4  rows
//        8    4  token of each text, `rows` times; kNoToken: the text has ended
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "proto/wire/little_endian.h"

namespace longhaul::wire {

inline constexpr uint32_t kMostRows = 16, kMostStops = 16;
inline constexpr uint32_t kNoToken = UINT32_MAX;

struct SampleRound {
  uint32_t tokens = 0;
  uint32_t top_k = 0;
  double temperature = 0, top_p = 1;
  uint64_t seed = 0;
  std::vector<uint32_t> lengths, stops;
  friend bool operator==(const SampleRound&, const SampleRound&) = default;
};

struct SampledTokens {
  bool over = false;
  bool nonfinite = false;
  std::vector<uint32_t> tokens;
  friend bool operator==(const SampledTokens&, const SampledTokens&) = default;
};

inline std::vector<std::byte> EncodeSampleRound(const SampleRound& round) {
  std::vector<std::byte> out(40 + 4 * (round.lengths.size() + round.stops.size()));
  PutLe<uint32_t>(out, 0, round.tokens);
  PutLe<uint32_t>(out, 4, static_cast<uint32_t>(round.lengths.size()));
  PutLe<uint32_t>(out, 8, static_cast<uint32_t>(round.stops.size()));
  PutLe<uint32_t>(out, 12, round.top_k);
  PutLe<uint64_t>(out, 16, std::bit_cast<uint64_t>(round.temperature));
  PutLe<uint64_t>(out, 24, std::bit_cast<uint64_t>(round.top_p));
  PutLe<uint64_t>(out, 32, round.seed);
  size_t at = 40;
  for (const std::vector<uint32_t>* list : {&round.lengths, &round.stops}) {
    for (const uint32_t one : *list) {
      PutLe<uint32_t>(out, at, one);
      at += 4;
    }
  }
  return out;
}

// kInvalidArgument: another size than its counts say, or counts above their limits.
inline StatusOr<SampleRound> DecodeSampleRound(std::span<const std::byte> bytes) {
  if (bytes.size() < 40) {
    return InvalidArgument("sample round: expected at least 40 bytes, got {}", bytes.size());
  }
  const auto rows = GetLe<uint32_t>(bytes, 4), stops = GetLe<uint32_t>(bytes, 8);
  if (rows > kMostRows || stops > kMostStops || bytes.size() != 40 + 4 * (size_t{rows} + stops)) {
    return InvalidArgument("sample round: {} texts and {} end tokens in {} bytes", rows, stops,
                           bytes.size());
  }
  SampleRound round{.tokens = GetLe<uint32_t>(bytes, 0),
                    .top_k = GetLe<uint32_t>(bytes, 12),
                    .temperature = std::bit_cast<double>(GetLe<uint64_t>(bytes, 16)),
                    .top_p = std::bit_cast<double>(GetLe<uint64_t>(bytes, 24)),
                    .seed = GetLe<uint64_t>(bytes, 32),
                    .lengths = {},
                    .stops = {}};
  for (uint32_t i = 0; i < rows + stops; ++i) {
    (i < rows ? round.lengths : round.stops).push_back(GetLe<uint32_t>(bytes, 40 + 4 * size_t{i}));
  }
  return round;
}

inline std::vector<std::byte> EncodeSampledTokens(const SampledTokens& sampled) {
  std::vector<std::byte> out(8 + 4 * sampled.tokens.size());
  PutLe<uint32_t>(out, 0, (sampled.over ? 1u : 0u) | (sampled.nonfinite ? 2u : 0u));
  PutLe<uint32_t>(out, 4, static_cast<uint32_t>(sampled.tokens.size()));
  for (size_t i = 0; i < sampled.tokens.size(); ++i) {
    PutLe<uint32_t>(out, 8 + 4 * i, sampled.tokens[i]);
  }
  return out;
}

// kInvalidArgument: another size than its count says, a count above its limit, or unknown flags.
inline StatusOr<SampledTokens> DecodeSampledTokens(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) {
    return InvalidArgument("sampled tokens: expected at least 8 bytes, got {}", bytes.size());
  }
  const auto flags = GetLe<uint32_t>(bytes, 0), rows = GetLe<uint32_t>(bytes, 4);
  if ((flags & ~3u) != 0 || rows > kMostRows || bytes.size() != 8 + 4 * size_t{rows}) {
    return InvalidArgument("sampled tokens: flags {:#x} and {} texts in {} bytes", flags, rows,
                           bytes.size());
  }
  SampledTokens sampled{.over = (flags & 1) != 0, .nonfinite = (flags & 2) != 0, .tokens = {}};
  for (uint32_t i = 0; i < rows; ++i) {
    sampled.tokens.push_back(GetLe<uint32_t>(bytes, 8 + 4 * size_t{i}));
  }
  return sampled;
}

}  // namespace longhaul::wire
