// Tests the copy engines and kernels of a GPU, before a worker uses the GPU.
#pragma once

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/status.h"

namespace longhaul::cuda {

// Copies 16 MiB to the device, changes every word by a kernel on another stream, copies the words
// back, and compares each with the value that the host computes. Blocks the calling thread.
// kDataLoss: a word is wrong; the message names the first one. kDeadlineExceeded: the device did
// not finish by `deadline`; the test's memory stays allocated. Other errors are those of CUDA
// calls.
Status CheckDevice(const Device& device, Deadline deadline);

}  // namespace longhaul::cuda
