// The text form of an emulated link: a rate, and the treatment of packets. Shared by `longhaul
// cluster` and a run file's topology. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul {

inline constexpr absl::Duration kMaxLinkDelay = absl::Seconds(10);

// Quality of one direction.
struct LinkQuality {
  absl::Duration delay;  // of each packet, one way
  // The delay varies by up to this much in both directions; at most `delay`.
  absl::Duration jitter;
  double loss = 0;  // share of packets; 0 to below 1

  bool Perfect() const { return *this == LinkQuality{}; }
  friend bool operator==(const LinkQuality&, const LinkQuality&) = default;
};

// Returns the larger delay, the larger jitter and the larger loss: a link is as bad as the worse of
// its two ends.
LinkQuality Worse(const LinkQuality& a, const LinkQuality& b);

// Parses "10mbit" to bits per second, and "unlimited" to 0; refuses rates below 64 kbit/s and above
// 100 Gbit/s. This and the next three functions return kInvalidArgument for a value that they
// refuse.
StatusOr<uint64_t> ParseLinkRate(std::string_view text);
// Parses "25ms", a delay or jitter of at most kMaxLinkDelay.
StatusOr<absl::Duration> ParseLinkDelay(std::string_view text);
// Parses "0.1%" to 0.001. Takes 0% to below 100%; a line that loses all packets is no link.
StatusOr<double> ParseLoss(std::string_view text);
// Refuses jitter above the delay, because packets would arrive before they were sent.
Status CheckLinkQuality(const LinkQuality& quality);

std::string FormatLinkRate(uint64_t bits_per_second);  // "10 Mbit/s"; "unlimited" for 0
// Returns "25 ms +- 2 ms, 0.1 % lost"; "" for a perfect link.
std::string FormatLinkQuality(const LinkQuality& quality);

}  // namespace longhaul
