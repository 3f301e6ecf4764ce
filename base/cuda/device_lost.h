// Recognizes GPU errors after which the process cannot use the GPU any more: the CUDA context is
// dead, and every later call fails or gives nonsense. Only a new process helps. Running out of
// memory is not such an error. Pure functions.
#pragma once

#include <string_view>

#include "base/status.h"

namespace longhaul::cuda {

// Returns true if this error code of the CUDA runtime means that the process has lost the GPU.
bool LosesDevice(int code);
// Tells the same from the message of a library's exception. `words` must contain "CUDA error: " and
// the text of the error, as in "CUDA error: misaligned address ...".
bool LosesDevice(std::string_view words);

// Returns `status`, which must not be OK, with a mark that the process has lost the GPU. Annotate
// (base/status.h) keeps the mark.
Status DeviceLost(Status status);
// Returns true if `status` has the mark.
bool IsDeviceLost(const Status& status);

}  // namespace longhaul::cuda
