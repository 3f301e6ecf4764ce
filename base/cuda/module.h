// Opens liblonghaul_cuda.so, the module that holds all GPU code. Programs open the module only when
// a user asks for CUDA, so they also start on machines without a driver. Thread-safe.
#pragma once

#include <string>

#include "base/cuda/table.h"
#include "base/status.h"

namespace longhaul::cuda {

// Returns ../lib/liblonghaul_cuda.so, relative to the running program's folder. There is no search
// path, because a module of another build must not be loaded.
std::string DefaultModulePath();
// For a library that foreign programs load: returns the path of liblonghaul_cuda.so in the folder
// of the library or program that contains `address`, the address of any function or global
// variable.
std::string ModulePathBeside(const void* address);

// Opens the module at `path` and returns its functions, never null. The module and the result stay
// valid to the end of the process. kFailedPrecondition: the module is missing, cannot be loaded or
// has another version. Needs no driver.
StatusOr<const DeviceTable*> LoadModule(const std::string& path);

}  // namespace longhaul::cuda
