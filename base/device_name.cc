#include "base/device_name.h"

#include <fmt/core.h>

#include <charconv>

namespace longhaul {

namespace {

constexpr std::string_view kPrefix = "cuda:";

}  // namespace

StatusOr<DeviceName> ParseDeviceName(std::string_view text) {
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

StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count) {
  std::vector<std::string> devices;
  const size_t dash = text.substr(0, kPrefix.size()) == kPrefix ? text.find('-') : text.npos;
  if (text != "cuda" && dash == text.npos) {
    if (!ParseDeviceName(text).ok()) {
      return absl::InvalidArgumentError(fmt::format(
          "expected cpu, cuda, cuda:N or a range of GPUs such as cuda:0-3, got '{}'", text));
    }
    devices.assign(count, std::string(text));
    return devices;
  }
  DeviceName first = {.cuda_index = 0};
  DeviceName last = {.cuda_index = count == 0 ? 0 : count - 1};
  if (dash != text.npos) {
    const auto wrong = [&] {
      return absl::InvalidArgumentError(
          fmt::format("expected a range of GPUs such as cuda:0-3, got '{}'", text));
    };
    const StatusOr<DeviceName> from = ParseDeviceName(text.substr(0, dash));
    const StatusOr<DeviceName> to =
        ParseDeviceName(fmt::format("{}{}", kPrefix, text.substr(dash + 1)));
    if (!from.ok() || !to.ok() || *from->cuda_index > *to->cuda_index) return wrong();
    first = *from, last = *to;
  }
  const uint64_t gpus = uint64_t{*last.cuda_index} - *first.cuda_index + 1;
  for (uint32_t i = 0; i < count; ++i) {
    devices.push_back(fmt::format("{}{}", kPrefix, *first.cuda_index + i % gpus));
  }
  return devices;
}

}  // namespace longhaul
