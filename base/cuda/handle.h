// What a C function made on a device and another one destroys; move-only. For stream.h and
// memory.h.
#ifndef LONGHAUL_BASE_CUDA_HANDLE_H_
#define LONGHAUL_BASE_CUDA_HANDLE_H_

#include <memory>

namespace longhaul::cuda {

struct HandleDestroyer {
  int (*destroy)(void* handle);
  // A failure here is one of earlier work on the device, which its waiter hears of.
  void operator()(void* handle) const { static_cast<void>(destroy(handle)); }
};
using Handle = std::unique_ptr<void, HandleDestroyer>;

}  // namespace longhaul::cuda

#endif  // LONGHAUL_BASE_CUDA_HANDLE_H_
