// Errors of a GPU after which a process cannot use it any more: the CUDA context is dead, and every
// call that follows gives the same error, or nonsense. Only another process helps. Running out of
// memory is none of them.
#ifndef LONGHAUL_BASE_CUDA_DEVICE_LOST_H_
#define LONGHAUL_BASE_CUDA_DEVICE_LOST_H_

#include <string_view>

#include "base/status.h"

namespace longhaul::cuda {

// The CUDA runtime's code.
bool LosesDevice(int code);
// What a library says that throws instead of returning codes: "CUDA error: misaligned address ...".
bool LosesDevice(std::string_view words);

// `status` marked as such an error. The mark stays through Annotate.
Status DeviceLost(Status status);
bool IsDeviceLost(const Status& status);

}  // namespace longhaul::cuda

#endif  // LONGHAUL_BASE_CUDA_DEVICE_LOST_H_
