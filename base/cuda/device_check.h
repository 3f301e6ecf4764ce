// Tests a GPU, from copy engines to kernels, before it is used.
#pragma once

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/status.h"

namespace longhaul::cuda {

// Copies 16 MiB to the device, changes every word by a kernel on another stream, copies the words
// back, and compares each with the value that the host computes. kDataLoss names the first wrong
// word. kDeadlineExceeded: the device did not finish, and the memory of the test stays allocated.
// Other errors are those of CUDA calls.
Status CheckDevice(const Device& device, Deadline deadline);

}  // namespace longhaul::cuda
