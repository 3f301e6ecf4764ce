// A Handle owns an object on a device that a function of DeviceTable (table.h) has made. The Handle
// destroys the object by another function of the table. Move-only. Used by stream.h, memory.h and
// graph.h.
#pragma once

#include <memory>

namespace longhaul::cuda {

struct HandleDestroyer {
  int (*destroy)(void* handle);  // returns an error code of the CUDA runtime; 0: success
  // Ignores a failure, because it reports an error of earlier work on the device. The call that
  // waits for that work returns the same error.
  void operator()(void* handle) const { static_cast<void>(destroy(handle)); }
};
using Handle = std::unique_ptr<void, HandleDestroyer>;

}  // namespace longhaul::cuda
