// How much a link's peer may have under way to us: what its rate is worth (transport::CreditsFor).
#ifndef LONGHAUL_WORKER_PIPELINE_LINK_CREDITS_H_
#define LONGHAUL_WORKER_PIPELINE_LINK_CREDITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

// Begins with the plan's rate, which may be one of a bad moment: then the line shows more as far as
// credits let it, and gets more, until they are no limit at the plan's round trip. Pure; one
// thread.
class LinkCredits {
 public:
  // Tensors of fewer chunks say nothing of a rate: the kernel hands over some 64 KiB at once, on a
  // slow line as well, so what is behind the first chunk must be several times that. They have
  // transport::kDefaultCredits.
  static constexpr uint32_t kChunksOfARate = 5;
  static constexpr size_t kSteps = 8;

  // As transport::CreditsFor.
  LinkCredits(double planned_bits_per_second, absl::Duration round_trip, uint64_t message_bytes)
      : round_trip_(round_trip), message_bytes_(message_bytes) {
    constexpr uint64_t kTooSmall = (kChunksOfARate - 1) * transport::kMaxFramePayloadBytes;
    count_ = message_bytes <= kTooSmall ? transport::kDefaultCredits : For(planned_bits_per_second);
  }

  uint32_t count() const { return count_; }

  // The rate at which a step's tensors arrived. True if there are more credits now: each of the
  // last kSteps steps was fast enough for these. One alone may have come out of a queue at once.
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

#endif  // LONGHAUL_WORKER_PIPELINE_LINK_CREDITS_H_
