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

// The first number of credits fits the rate in the plan. This rate may have been measured at a bad
// moment. If tensors arrive faster, the credits grow until they no longer limit the rate. Credits
// never shrink. The round trip is always that of the plan. One thread at a time.
class LinkCredits {
 public:
  // Minimum number of chunks of a tensor that shows the line's rate. Even on a slow line the kernel
  // delivers about 64 KiB at once, so the chunks after the first must be several times as large.
  // Links with smaller tensors get transport::kDefaultCredits.
  static constexpr uint32_t kChunksOfARate = 5;
  static constexpr size_t kSteps = 8;  // number of fast steps in a row before credits grow

  // The arguments are those of transport::CreditsFor. A rate or round trip of 0 is unknown.
  LinkCredits(double planned_bits_per_second, absl::Duration round_trip, uint64_t message_bytes)
      : round_trip_(round_trip), message_bytes_(message_bytes) {
    constexpr uint64_t kTooSmall = (kChunksOfARate - 1) * transport::kMaxFramePayloadBytes;
    count_ = message_bytes <= kTooSmall ? transport::kDefaultCredits : For(planned_bits_per_second);
  }

  // The number of credits that the peer should have now.
  uint32_t count() const { return count_; }

  // Call it once a step with the rate at which tensors arrived. Returns true if count() has grown.
  // The slowest of the last kSteps steps sets the new count, because a single step may look fast:
  // its tensors may have come out of a queue at once.
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
