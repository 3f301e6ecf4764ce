// Owns an object that one C function makes on a device and another destroys; move-only. Used by
// stream.h and memory.h.
#pragma once

#include <memory>

namespace longhaul::cuda {

struct HandleDestroyer {
  int (*destroy)(void* handle);
  // Ignores failures here, because they belong to earlier work on the device. The waiter for that
  // work gets them.
  void operator()(void* handle) const { static_cast<void>(destroy(handle)); }
};
using Handle = std::unique_ptr<void, HandleDestroyer>;

}  // namespace longhaul::cuda
