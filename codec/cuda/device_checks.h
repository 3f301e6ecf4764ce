// Checks the caller's device memory before a kernel is queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace longhaul::codec::cuda {

// Returns kInvalidArgument if the memory is null or not aligned. The message begins with `codec`
// and `what`: "sdp4bit: an input must be ...".
inline Status CheckAligned(std::string_view codec, std::string_view what, const void* memory_dev,
                           size_t alignment) {
  if (memory_dev != nullptr && reinterpret_cast<uintptr_t>(memory_dev) % alignment == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument("{}: {} must be in device memory and aligned to {} bytes, got {}", codec,
                         what, alignment, memory_dev);
}

}  // namespace longhaul::codec::cuda
