// Parses the names of devices that compute, as in the flag --device: `cpu`, `cuda` (the first GPU)
// or `cuda:N`. Pure functions.
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

// Parses one device. kInvalidArgument: none of the three forms above.
StatusOr<DeviceName> ParseDeviceName(std::string_view text);
std::string ToString(const DeviceName& name);  // "cpu", "cuda:2"

// Parses several devices of one machine, separated by commas: names as above, or "cuda:A-B" for the
// GPUs A to B. "cpu,cpu" means two ranks on the CPU. kInvalidArgument: a name of another form, a
// GPU that occurs twice, GPUs together with the CPU, or more than 1024 devices.
StatusOr<std::vector<DeviceName>> ParseDeviceNames(std::string_view text);

// Divides devices among `count` workers of one machine. Returns a text for each worker: the names
// of `each` devices, separated by commas. "cpu" and "cuda:N" go to every worker. "cuda" gives GPU
// 0, 1, 2, ... in turn. "cuda:A-B" gives the GPUs A to B in turn, and begins again at A after B, so
// workers may share a GPU. kInvalidArgument: a text of another form, or one worker would get the
// same GPU twice. Does not check that the GPUs exist.
StatusOr<std::vector<std::string>> ShareDevices(std::string_view text, uint32_t count,
                                                uint32_t each = 1);

}  // namespace longhaul
