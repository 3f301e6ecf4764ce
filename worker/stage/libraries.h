// What a stage computes with beside its own code.
#ifndef LONGHAUL_WORKER_STAGE_LIBRARIES_H_
#define LONGHAUL_WORKER_STAGE_LIBRARIES_H_

#include <string>

namespace longhaul::worker {

// LibTorch's build, the libraries below it with their versions, and the instruction set that it
// has chosen on this CPU. Processes with equal texts on equal devices run the same kernels. Not for
// people; several lines. Of a GPU: LoadTorchCuda came before (torch_cuda.h). Thread-safe.
std::string LibrariesOfStages();

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_LIBRARIES_H_
