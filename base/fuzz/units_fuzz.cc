// Any text as a rate, a size, a duration and a device: refused, or what was read can be shown.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/device_name.h"
#include "base/fuzz/target.h"
#include "base/units.h"

LH_FUZZ_TARGET(units) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool taken = false;
  if (const auto rate = longhaul::ParseBitsPerSecond(text); rate.ok()) {
    taken = true;
    if (longhaul::FormatBitsPerSecond(static_cast<double>(*rate)).empty()) std::abort();
  }
  if (const auto bytes = longhaul::ParseBytes(text); bytes.ok()) {
    taken = true;
    if (longhaul::FormatBytes(static_cast<double>(*bytes)).empty()) std::abort();
  }
  if (const auto duration = longhaul::ParseDuration(text); duration.ok()) {
    taken = true;
    if (*duration < absl::ZeroDuration() || longhaul::FormatDuration(*duration).empty()) {
      std::abort();
    }
  }
  return longhaul::ParseDeviceName(text).ok() || taken;
}
