// Decides how many credits a link's peer gets, that is how many frames may be in flight to this
// side, from the link's measured rate (transport::CreditsFor).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

// Begins with the plan's rate. If that rate was measured at a bad moment, tensors arrive faster
// than planned, as far as the credits allow. Then the credits grow until they no longer limit the
// rate at the plan's round trip. Pure; one thread at a time.
class LinkCredits {
 public:
  // Tensors with fewer chunks do not show a rate: even on a slow line the kernel delivers some 64
  // KiB at once, so the bytes after the first chunk must be several times that. Links with smaller
  // tensors have transport::kDefaultCredits.
  static constexpr uint32_t kChunksOfARate = 5;
  static constexpr size_t kSteps = 8;

  // Takes the arguments of transport::CreditsFor.
  LinkCredits(double planned_bits_per_second, absl::Duration round_trip, uint64_t message_bytes)
      : round_trip_(round_trip), message_bytes_(message_bytes) {
    constexpr uint64_t kTooSmall = (kChunksOfARate - 1) * transport::kMaxFramePayloadBytes;
    count_ = message_bytes <= kTooSmall ? transport::kDefaultCredits : For(planned_bits_per_second);
  }

  uint32_t count() const { return count_; }

  // Call it once a step with the rate at which tensors arrived. True if the number of credits has
  // grown. It grows when each of the last kSteps steps was fast enough; a single fast step may have
  // come out of a queue at once.
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
