#include <algorithm>
#include <cmath>

#include "transport/p2p/link.h"

namespace longhaul::transport {
namespace {

constexpr absl::Duration kQueue = absl::Milliseconds(100);
constexpr uint32_t kLeastCredits = 8;

}  // namespace

uint32_t CreditsFor(double bits_per_second, absl::Duration round_trip, uint64_t message_bytes) {
  if (!(bits_per_second > 0 && round_trip > absl::ZeroDuration())) return kDefaultCredits;
  constexpr auto kWhole = static_cast<double>(kMaxFramePayloadBytes);
  const auto message = static_cast<double>(message_bytes);
  const double chunk = message_bytes == 0 ? kWhole : message / std::ceil(message / kWhole);
  const double bytes = bits_per_second / 8 * absl::ToDoubleSeconds(2 * round_trip + kQueue);
  return static_cast<uint32_t>(
      std::clamp(std::ceil(bytes / chunk), double{kLeastCredits}, double{kDefaultCredits}));
}

}  // namespace longhaul::transport
