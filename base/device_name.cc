#include "base/device_name.h"

#include <fmt/core.h>

#include <charconv>

namespace longhaul {

namespace {

constexpr std::string_view kPrefix = "cuda:";

// "cuda:A-B", whether A and B make sense or not.
bool IsRange(std::string_view text) {
  return text.starts_with(kPrefix) && text.find('-') != text.npos;
}

Status NotDevices(std::string_view text) {
  return absl::InvalidArgumentError(fmt::format(
      "expected cpu, cuda, cuda:N or a range of GPUs such as cuda:0-3, got '{}'", text));
}

struct GpuRange {
  uint32_t first = 0, last = 0;
};

StatusOr<GpuRange> ParseRange(std::string_view text) {
  const size_t dash = text.find('-');
  const StatusOr<DeviceName> first = ParseDeviceName(text.substr(0, dash));
  const StatusOr<DeviceName> last =
      ParseDeviceName(fmt::format("{}{}", kPrefix, text.substr(dash + 1)));
  if (!first.ok() || !last.ok() || *first->cuda_index > *last->cuda_index) {
    return absl::InvalidArgumentError(
        fmt::format("expected a range of GPUs such as cuda:0-3, got '{}'", text));
  }
  return GpuRange{*first->cuda_index, *last->cuda_index};
}

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

StatusOr<std::vector<DeviceName>> ParseDeviceNames(std::string_view text) {
  if (const StatusOr<DeviceName> one = ParseDeviceName(text); one.ok()) return std::vector{*one};
  if (!IsRange(text)) return NotDevices(text);
  const StatusOr<GpuRange> range = ParseRange(text);
  if (!range.ok()) return NotDevices(text);
  // More than any machine has; the runtime says which of them there are.
  constexpr uint32_t kMostGpus = 1024;
  if (range->last - range->first >= kMostGpus) {
    return absl::InvalidArgumentError(
        fmt::format("expected a range of at most {} GPUs, got '{}'", kMostGpus, text));
  }
  std::vector<DeviceName> devices;
  for (uint32_t gpu = range->first; gpu <= range->last; ++gpu) devices.push_back({gpu});
  return devices;
}

StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count) {
  std::vector<std::string> devices;
  if (text != "cuda" && !IsRange(text)) {
    if (!ParseDeviceName(text).ok()) return NotDevices(text);
    devices.assign(count, std::string(text));
    return devices;
  }
  GpuRange range = {.first = 0, .last = count == 0 ? 0 : count - 1};
  if (IsRange(text)) {
    LH_ASSIGN_OR_RETURN(range, ParseRange(text));
  }
  const uint64_t gpus = uint64_t{range.last} - range.first + 1;
  for (uint32_t i = 0; i < count; ++i) {
    devices.push_back(fmt::format("{}{}", kPrefix, range.first + i % gpus));
  }
  return devices;
}

}  // namespace longhaul
