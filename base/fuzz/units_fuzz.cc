// Any text as a rate, a size, a duration and a device: refused, or what was read can be shown.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/device_name.h"
#include "base/units.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto rate = longhaul::ParseBitsPerSecond(text); rate.ok()) {
    if (longhaul::FormatBitsPerSecond(static_cast<double>(*rate)).empty()) std::abort();
  }
  if (const auto bytes = longhaul::ParseBytes(text); bytes.ok()) {
    if (longhaul::FormatBytes(static_cast<double>(*bytes)).empty()) std::abort();
  }
  if (const auto duration = longhaul::ParseDuration(text); duration.ok()) {
    if (*duration < absl::ZeroDuration() || longhaul::FormatDuration(*duration).empty()) {
      std::abort();
    }
  }
  (void)longhaul::ParseDeviceName(text).ok();
  return 0;
}
