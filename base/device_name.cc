#include "base/device_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace longhaul {

namespace {

constexpr std::string_view kPrefix = "cuda:";

// "cuda:A-B", whether A and B make sense or not.
bool IsRange(std::string_view text) {
  return text.starts_with(kPrefix) && text.find('-') != text.npos;
}

Status NotDevices(std::string_view text) {
  return InvalidArgument("expected cpu, cuda, cuda:N or a range of GPUs such as cuda:0-3, got '{}'",
                         text);
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
    return InvalidArgument("expected a range of GPUs such as cuda:0-3, got '{}'", text);
  }
  return GpuRange{*first->cuda_index, *last->cuda_index};
}

// A device for each of `count`.
StatusOr<std::vector<std::string>> InTurn(std::string_view text, uint32_t count) {
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

// What stands between two commas of `whole`.
Status AddDevices(std::string_view text, std::string_view whole, std::vector<DeviceName>* devices) {
  // More than any machine has; the runtime says which of them there are.
  constexpr uint32_t kMostDevices = 1024;
  const auto too_many = [&] {
    return InvalidArgument("expected at most {} devices, got '{}'", kMostDevices, whole);
  };
  if (devices->size() >= kMostDevices) return too_many();
  if (const StatusOr<DeviceName> one = ParseDeviceName(text); one.ok()) {
    devices->push_back(*one);
    return absl::OkStatus();
  }
  if (!IsRange(text)) return NotDevices(whole);
  const StatusOr<GpuRange> range = ParseRange(text);
  if (!range.ok()) return NotDevices(whole);
  if (range->last - range->first >= kMostDevices - devices->size()) return too_many();
  for (uint32_t gpu = range->first; gpu <= range->last; ++gpu) devices->push_back({gpu});
  return absl::OkStatus();
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
  return InvalidArgument("expected cpu, cuda or cuda:N with N = 0, 1, ..., got '{}'", text);
}

std::string ToString(const DeviceName& name) {
  return name.cuda_index ? fmt::format("{}{}", kPrefix, *name.cuda_index) : "cpu";
}

StatusOr<std::vector<DeviceName>> ParseDeviceNames(std::string_view text) {
  std::vector<DeviceName> devices;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    LH_RETURN_IF_ERROR(AddDevices(text.substr(begin, end - begin), text, &devices));
    begin = end + 1;
  }
  const DeviceName& first = devices.front();
  for (auto it = devices.begin(); it != devices.end(); ++it) {
    if (it->cuda_index.has_value() != first.cuda_index.has_value()) {
      return InvalidArgument(
          "expected GPUs alone or the CPU alone, got '{}'; start a worker for each", text);
    }
    if (it->cuda_index && std::find(devices.begin(), it, *it) != it) {
      return InvalidArgument("expected every GPU once, got {} twice in '{}'", ToString(*it), text);
    }
  }
  return devices;
}

StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count,
                                                uint32_t each) {
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> devices, InTurn(text, count * each));
  std::vector<std::string> shared(count);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t k = 0; k < each; ++k) {
      shared[i] += (k == 0 ? "" : ",") + devices[size_t{i} * each + k];
    }
    LH_RETURN_IF_ERROR(ParseDeviceNames(shared[i]).status());
  }
  return shared;
}

}  // namespace longhaul
