// Lets low-priority transfers share a line with tensors. Pieces are so small that a tensor hardly
// waits for one. A piece is sent when no tensor is in flight, or after a time that leaves the
// transfer a share of the line. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/wire/transfer_word.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

struct LinePace {
  double bits_per_second = 0;  // of the line; 0: unknown
  double share = 0;            // of the line, taken while the line is never quiet

  // A tensor that starts while a piece is on the line waits for it, so a piece takes 1.5 ms of the
  // line.
  size_t PieceBytes() const {
    constexpr double kPieceSeconds = 1.5e-3;
    constexpr size_t kLeastPiece = size_t{1} << 10, kUnknownPiece = size_t{8} << 10;
    if (!(bits_per_second > 0)) return kUnknownPiece;
    const double bytes = bits_per_second / 8 * kPieceSeconds;
    return std::clamp(static_cast<size_t>(std::min(bytes, 1e9)), kLeastPiece,
                      transport::kMaxFramePayloadBytes);
  }
  // Longest time that `bytes` wait for a quiet line.
  absl::Duration PatienceFor(uint64_t bytes) const {
    const double rate = bits_per_second > 0 ? bits_per_second : wire::kAssumedLineBitsPerSecond;
    return absl::Seconds(8 * static_cast<double>(bytes) / (rate * share));
  }
  absl::Duration LineTime(uint64_t bytes) const {
    if (!(bits_per_second > 0)) return absl::ZeroDuration();
    return absl::Seconds(8 * static_cast<double>(bytes) / bits_per_second);
  }
};

}  // namespace longhaul::worker
