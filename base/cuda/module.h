// Opens liblonghaul_cuda.so, which holds all GPU code, when a user asks for CUDA: so programs start
// on machines without a driver, and one binary serves both kinds of machine.
#ifndef LONGHAUL_BASE_CUDA_MODULE_H_
#define LONGHAUL_BASE_CUDA_MODULE_H_

#include <string>

#include "base/cuda/table.h"
#include "base/status.h"

namespace longhaul::cuda {

// liblonghaul_cuda.so in ../lib beside the folder of the running program: no search path, since a
// module of another build must not be taken.
std::string DefaultModulePath();

// The module stays open to the end of the process. kFailedPrecondition when there is none, when it
// cannot be loaded or when it is of another version. Needs no driver. Any thread.
StatusOr<const DeviceTable*> LoadModule(const std::string& path);

}  // namespace longhaul::cuda

#endif  // LONGHAUL_BASE_CUDA_MODULE_H_
