// Opens LibTorch's CUDA part when a user asks for a GPU: so one worker serves machines with and
// without one.
#ifndef LONGHAUL_WORKER_STAGE_TORCH_CUDA_H_
#define LONGHAUL_WORKER_STAGE_TORCH_CUDA_H_

#include <string>

#include "base/status.h"

namespace longhaul::worker {

// liblonghaul_torch_cuda.so in ../lib beside the folder of the running program.
std::string DefaultTorchCudaPath();

// Before the process's first use of LibTorch, which looks for its parts once. The module stays open
// to the end of the process. kFailedPrecondition where there is none, or LibTorch's CUDA part or
// what that needs (cuBLAS, cuDNN, NCCL, ...) is missing.
Status LoadTorchCuda(const std::string& path);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TORCH_CUDA_H_
