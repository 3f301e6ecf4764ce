// What a program is asked to compute on: `--device cpu`, `cuda` (the first GPU) or `cuda:N`.
#ifndef LONGHAUL_BASE_DEVICE_NAME_H_
#define LONGHAUL_BASE_DEVICE_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

struct DeviceName {
  // The GPU's number as the CUDA runtime counts (CUDA_VISIBLE_DEVICES applies); none: the CPU.
  std::optional<uint32_t> cuda_index;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// kInvalidArgument for anything else.
StatusOr<DeviceName> ParseDeviceName(std::string_view text);
// Several of one machine: as ParseDeviceName, and "cuda:A-B" for GPUs A to B. kInvalidArgument for
// anything else.
StatusOr<std::vector<DeviceName>> ParseDeviceNames(std::string_view text);

// The devices of `count` workers of one machine, each as ParseDeviceName reads it: "cpu" and
// "cuda:N" for all; of "cuda" GPU 0, 1, ... each one; of "cuda:A-B" these in turn, so that several
// share one where they are fewer. kInvalidArgument for anything else.
StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_DEVICE_NAME_H_
