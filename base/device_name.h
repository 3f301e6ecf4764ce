// What a program is asked to compute on: `--device cpu`, `cuda` (the first GPU) or `cuda:N`.
#ifndef LONGHAUL_BASE_DEVICE_NAME_H_
#define LONGHAUL_BASE_DEVICE_NAME_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace longhaul {

struct DeviceName {
  // The GPU's number as the CUDA runtime counts (CUDA_VISIBLE_DEVICES applies); none: the CPU.
  std::optional<uint32_t> cuda_index;
};

// kInvalidArgument for anything else.
StatusOr<DeviceName> ParseDeviceName(std::string_view text);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_DEVICE_NAME_H_
