// Tests a GPU, from copy engines to kernels, before it is used.
#pragma once

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/status.h"

namespace longhaul::cuda {

// Copies 16 MiB to the device, lets a kernel change every word on another stream, copies them back
// and compares each with the host's result. Errors: kDataLoss naming the first wrong word,
// kDeadlineExceeded, or the error of a failed call.
Status CheckDevice(const Device& device, Deadline deadline);

}  // namespace longhaul::cuda
