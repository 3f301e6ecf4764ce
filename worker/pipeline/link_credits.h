// Decides how many credits the peer of a link gets, that is, how many frames it may have in flight
// to this side. The number depends on the link's measured rate (transport::CreditsFor).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

// Begins with credits for the rate in the plan. This rate may have been measured at a bad moment,
// so that tensors arrive faster. Then the credits grow until they no longer limit the rate, for the
// round trip in the plan. They never shrink. Pure; one thread at a time.
class LinkCredits {
 public:
  // A tensor with fewer chunks does not show the line's rate: even on a slow line the kernel
  // delivers about 64 KiB at once, and the bytes after the first chunk must be several times as
  // many. Links whose tensors are smaller get transport::kDefaultCredits.
  static constexpr uint32_t kChunksOfARate = 5;
  static constexpr size_t kSteps = 8;  // as many steps must be fast before credits grow

  // The arguments are those of transport::CreditsFor.
  LinkCredits(double planned_bits_per_second, absl::Duration round_trip, uint64_t message_bytes)
      : round_trip_(round_trip), message_bytes_(message_bytes) {
    constexpr uint64_t kTooSmall = (kChunksOfARate - 1) * transport::kMaxFramePayloadBytes;
    count_ = message_bytes <= kTooSmall ? transport::kDefaultCredits : For(planned_bits_per_second);
  }

  uint32_t count() const { return count_; }

  // Call it once a step with the rate at which tensors arrived. Returns true if count() has grown.
  // It grows only when each of the last kSteps steps was fast enough. A single step may look fast
  // because its tensors came out of a queue at once.
  bool OnStep(double bits_per_second) {
    rates_.push_back(bits_per_second);
    if (rates_.size() > kSteps) rates_.pop_front();
    if (rates_.size() < kSteps) return false;
    const uint32_t worth = For(*std::ranges::min_element(rates_));
    if (worth <= count_) return false;
    count_ = worth;
    return true;
  }

 private:
  uint32_t For(double bits_per_second) const {
    return transport::CreditsFor(bits_per_second, round_trip_, message_bytes_);
  }

  absl::Duration round_trip_;
  uint64_t message_bytes_;
  uint32_t count_;
  std::deque<double> rates_;
};

}  // namespace longhaul::worker
