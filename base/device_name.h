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
std::string ToString(const DeviceName& name);  // "cpu", "cuda:2"

// Several of one machine, all of one kind: as ParseDeviceName, "cuda:A-B" for GPUs A to B, and such
// with commas between, as "cuda:0,cuda:2-3" or "cpu,cpu", which is two ranks on the CPU. No GPU is
// there twice. kInvalidArgument for anything else.
StatusOr<std::vector<DeviceName>> ParseDeviceNames(std::string_view text);

// The devices of `count` workers of one machine, `each` of a worker with commas between, as
// ParseDeviceNames reads them: "cpu" and "cuda:N" for all; of "cuda" GPU 0, 1, ... each one; of
// "cuda:A-B" these in turn, so that several workers share one where they are fewer.
// kInvalidArgument for anything else, and where a worker would have a GPU twice.
StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count,
                                                uint32_t each = 1);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_DEVICE_NAME_H_
