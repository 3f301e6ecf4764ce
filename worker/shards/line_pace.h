// Computes how a low-priority transfer shares a line with the tensors of training. A line is a
// worker's connection to its network. The transfer is cut into pieces that are so small that a
// tensor hardly waits for one piece. A piece is sent when no tensor is in flight. If the line is
// never quiet, a piece is sent after PatienceFor, so that the transfer gets a fixed share of the
// line. Pure functions, which cannot fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/wire/transfer_word.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

struct LinePace {
  double bits_per_second = 0;  // rate of the line; 0: unknown
  double share = 0;            // share of the line while tensors use it: above 0, at most 1

  // Size of a piece in bytes. A piece occupies the line for about 1.5 ms, because a tensor that
  // starts meanwhile must wait for the piece. On lines below 5.5 Mbit/s the time is longer, because
  // a piece has at least 1 KiB. If the rate is unknown, a piece has 8 KiB.
  size_t PieceBytes() const {
    constexpr double kPieceSeconds = 1.5e-3;
    constexpr size_t kLeastPiece = size_t{1} << 10, kUnknownPiece = size_t{8} << 10;
    if (!(bits_per_second > 0)) return kUnknownPiece;
    const double bytes = bits_per_second / 8 * kPieceSeconds;
    return std::clamp(static_cast<size_t>(std::min(bytes, 1e9)), kLeastPiece,
                      transport::kMaxFramePayloadBytes);
  }
  // The longest time for which a piece of `bytes` bytes waits while tensors are in flight. After
  // this time the piece is sent although tensors are in flight. An unknown rate counts as
  // wire::kAssumedLineBitsPerSecond.
  absl::Duration PatienceFor(uint64_t bytes) const {
    const double rate = bits_per_second > 0 ? bits_per_second : wire::kAssumedLineBitsPerSecond;
    return absl::Seconds(8 * static_cast<double>(bytes) / (rate * share));
  }
  // The time for which `bytes` bytes occupy the line; zero if the rate is unknown.
  absl::Duration LineTime(uint64_t bytes) const {
    if (!(bits_per_second > 0)) return absl::ZeroDuration();
    return absl::Seconds(8 * static_cast<double>(bytes) / bits_per_second);
  }
};

}  // namespace longhaul::worker
