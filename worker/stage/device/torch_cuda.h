// Opens LibTorch's CUDA part at run time, when a user asks for a GPU. One worker program thus
// serves machines with and without a GPU.
#pragma once

#include <string>

#include "base/status.h"

namespace longhaul::worker {

// Path of liblonghaul_torch_cuda.so in ../lib beside the running program's folder.
std::string DefaultTorchCudaPath();

// Opens the module at `path`, which stays open to the end of the process. Call it before the first
// use of LibTorch, which looks for its parts only once. kFailedPrecondition: no module, or
// LibTorch's CUDA part or its libraries (cuBLAS, cuDNN, NCCL, ...) are missing.
Status LoadTorchCuda(const std::string& path);

}  // namespace longhaul::worker
