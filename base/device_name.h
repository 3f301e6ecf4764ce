// Parses the device for computing: `--device cpu`, `cuda` (the first GPU) or `cuda:N`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

struct DeviceName {
  // The GPU's index in the CUDA runtime (CUDA_VISIBLE_DEVICES applies). nullopt: the CPU.
  std::optional<uint32_t> cuda_index;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// kInvalidArgument for anything else.
StatusOr<DeviceName> ParseDeviceName(std::string_view text);
std::string ToString(const DeviceName& name);  // "cpu", "cuda:2"

// Several devices of one machine and of one kind: names as above or "cuda:A-B" for GPUs A to B,
// separated by commas. "cpu,cpu" means two ranks on the CPU. A GPU may occur once. kInvalidArgument
// for anything else.
StatusOr<std::vector<DeviceName>> ParseDeviceNames(std::string_view text);

// Divides devices among `count` workers of one machine, `each` devices a worker, comma-separated.
// "cpu" and "cuda:N": the same for all. "cuda": GPU 0, 1, ... in turn. "cuda:A-B": these in turn,
// so that workers share them if there are too few. kInvalidArgument for anything else, and if a
// worker would get a GPU twice.
StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count,
                                                uint32_t each = 1);

}  // namespace longhaul
