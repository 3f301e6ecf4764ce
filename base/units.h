// Parses and formats quantities as people write them: "100mbit", "2GiB", "20ms". Decimals are valid
// and are rounded down to a whole bit, byte or nanosecond. Units ignore the case. Errors of parsing
// are kInvalidArgument and list the units. Pure functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul {

// Parses "10mbit", "1gbit", "500kbit", "8bit": bits per second, decimal multiples, as in tc(8).
StatusOr<uint64_t> ParseBitsPerSecond(std::string_view text);
// Parses "64KiB", "2GiB", "10MB", "512". Returns bytes.
StatusOr<uint64_t> ParseBytes(std::string_view text);
// Parses "20ms", "1.5s", "2m30s", "1h"; "0" needs no unit. At most 36500 days, never negative.
StatusOr<absl::Duration> ParseDuration(std::string_view text);

std::string FormatBitsPerSecond(double bits_per_second);  // "9.56 Mbit/s"
std::string FormatBytes(double bytes);                    // "36.1 KB" (decimal)
std::string FormatBytes(std::integral auto bytes) {
  return FormatBytes(static_cast<double>(bytes));
}
// Returns "2m05s", "1.35 s", "42 ms"; "forever" if infinite. Write longhaul::FormatDuration,
// because the argument's type also makes absl::FormatDuration a candidate.
std::string FormatDuration(absl::Duration duration);
inline std::string FormatSeconds(double seconds) {
  return longhaul::FormatDuration(absl::Seconds(seconds));
}

}  // namespace longhaul
