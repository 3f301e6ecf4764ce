// The identity of the libraries that a stage computes with.
#pragma once

#include <string>

namespace longhaul::worker {

// Describes LibTorch's build, the libraries below it with their versions, and the instruction set
// that it chose on this CPU. Processes with equal texts on equal devices run the same kernels.
// Several lines, not meant for people. For a GPU call LoadTorchCuda first (torch_cuda.h).
// Thread-safe.
std::string LibrariesOfStages();

}  // namespace longhaul::worker
