// Opens LibTorch's CUDA part at run time, when a user asks for a GPU. So one program of the worker
// serves machines with and without a GPU.
#pragma once

#include <string>

#include "base/status.h"

namespace longhaul::worker {

// Returns the path of liblonghaul_torch_cuda.so in the folder ../lib, seen from the running
// program's folder.
std::string DefaultTorchCudaPath();

// Opens the module at `path` and keeps it open until the process ends. Call it before the first use
// of LibTorch, because LibTorch looks for its parts only once. Call it while the process has one
// thread, because it sets an environment variable. kFailedPrecondition: the module, LibTorch's CUDA
// part, one of its libraries (cuBLAS, cuDNN, NCCL, ...) or a GPU is missing.
Status LoadTorchCuda(const std::string& path);

}  // namespace longhaul::worker
