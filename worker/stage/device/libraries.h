// Identifies the libraries that a stage computes with.
#pragma once

#include <string>

namespace longhaul::worker {

// Returns a text about LibTorch's build, the versions of the libraries that it uses, and the
// instruction set that it chose on this CPU. If two processes on equal devices have equal texts,
// they run the same kernels. Several lines, not meant for people. For a GPU call LoadTorchCuda
// first (torch_cuda.h). Thread-safe.
std::string LibrariesOfStages();

}  // namespace longhaul::worker
