// Recognises GPU errors after which the process cannot use the GPU any more: the CUDA context is
// dead, and every later call fails or gives nonsense. Only a new process helps. Running out of
// memory is not such an error.
#pragma once

#include <string_view>

#include "base/status.h"

namespace longhaul::cuda {

// Whether this error code of the CUDA runtime is such an error.
bool LosesDevice(int code);
// The same for the message of a library's exception: "CUDA error: misaligned address ...".
bool LosesDevice(std::string_view words);

// Marks `status` as such an error. Annotate keeps the mark.
Status DeviceLost(Status status);
bool IsDeviceLost(const Status& status);

}  // namespace longhaul::cuda
