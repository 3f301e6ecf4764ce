#include "base/device_name.h"

#include <fmt/core.h>

#include <charconv>

namespace longhaul {

StatusOr<DeviceName> ParseDeviceName(std::string_view text) {
  constexpr std::string_view kPrefix = "cuda:";
  if (text == "cpu") return DeviceName{};
  if (text == "cuda") return DeviceName{.cuda_index = 0};
  if (text.substr(0, kPrefix.size()) == kPrefix) {
    const char* const first = text.data() + kPrefix.size();
    const char* const last = text.data() + text.size();
    uint32_t index = 0;
    const auto [end, error] = std::from_chars(first, last, index);
    // The runtime counts with an int.
    if (error == std::errc() && end == last && index <= INT32_MAX) return DeviceName{index};
  }
  return absl::InvalidArgumentError(
      fmt::format("expected cpu, cuda or cuda:N with N = 0, 1, ..., got '{}'", text));
}

}  // namespace longhaul
