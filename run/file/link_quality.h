// What an emulated link is like, as people write it: a rate, and what happens to packets on the
// way. Shared by `longhaul cluster` and by a run file's topology. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul {

inline constexpr absl::Duration kMaxLinkDelay = absl::Seconds(10);

// One way.
struct LinkQuality {
  absl::Duration delay;
  // The delay wanders by up to this much to either side; at most `delay`.
  absl::Duration jitter;
  double loss = 0;  // share of packets; 0 to below 1

  bool Perfect() const { return *this == LinkQuality{}; }
  friend bool operator==(const LinkQuality&, const LinkQuality&) = default;
};

// The larger delay, jitter and loss: between two ends the worse one counts, as with their rates.
LinkQuality Worse(const LinkQuality& a, const LinkQuality& b);

// All kInvalidArgument:
// "10mbit", or "unlimited" = 0; below 64 kbit/s and above 100 Gbit/s too.
StatusOr<uint64_t> ParseLinkRate(std::string_view text);
// "25ms", for a delay or jitter: up to kMaxLinkDelay.
StatusOr<absl::Duration> ParseLinkDelay(std::string_view text);
// "0.1%" = 0.001; 0% to below 100%, a line that loses everything is one that is cut.
StatusOr<double> ParseLoss(std::string_view text);
// Jitter above the delay: packets would arrive before they were sent.
Status CheckLinkQuality(const LinkQuality& quality);

std::string FormatLinkRate(uint64_t bits_per_second);  // "10 Mbit/s", "unlimited"
// "25 ms +- 2 ms, 0.1 % lost"; "" where nothing happens to packets.
std::string FormatLinkQuality(const LinkQuality& quality);

}  // namespace longhaul
