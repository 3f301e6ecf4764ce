// A Handle owns an object that a C function has made on a device, and destroys it by another C
// function. Move-only. Used by stream.h, memory.h and graph.h.
#pragma once

#include <memory>

namespace longhaul::cuda {

struct HandleDestroyer {
  int (*destroy)(void* handle);
  // Ignores a failure, because it reports an error of earlier work on the device. The call that
  // waits for that work returns the same error.
  void operator()(void* handle) const { static_cast<void>(destroy(handle)); }
};
using Handle = std::unique_ptr<void, HandleDestroyer>;

}  // namespace longhaul::cuda
