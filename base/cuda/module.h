// Opens liblonghaul_cuda.so, which holds all GPU code, when a user asks for CUDA. Programs
// therefore start on machines without a driver.
#pragma once

#include <string>

#include "base/cuda/table.h"
#include "base/status.h"

namespace longhaul::cuda {

// Returns ../lib/liblonghaul_cuda.so, relative to the running program's folder. There is no search
// path, because a module of another build must not be loaded.
std::string DefaultModulePath();
// For a library that foreign programs load: returns the path of liblonghaul_cuda.so in the folder
// of the library or program that contains `address`.
std::string ModulePathBeside(const void* address);

// Opens the module at `path` and returns its functions. The module stays open to the end of the
// process. kFailedPrecondition if the module is missing, cannot be loaded or has another version.
// Needs no driver. Any thread.
StatusOr<const DeviceTable*> LoadModule(const std::string& path);

}  // namespace longhaul::cuda
