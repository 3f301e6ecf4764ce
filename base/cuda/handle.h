// Owns an object that one C function makes on a device and another destroys; move-only. For
// stream.h and memory.h.
#pragma once

#include <memory>

namespace longhaul::cuda {

struct HandleDestroyer {
  int (*destroy)(void* handle);
  // A failure here belongs to earlier work on the device. Whoever waits for that work is told.
  void operator()(void* handle) const { static_cast<void>(destroy(handle)); }
};
using Handle = std::unique_ptr<void, HandleDestroyer>;

}  // namespace longhaul::cuda
