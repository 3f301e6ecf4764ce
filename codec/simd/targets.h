// The instruction sets of the codecs' kernels, and the set in use: by default the best one of this
// CPU. All sets give the same bytes.
//
// Threads: KernelTarget() may be called from any thread. UseKernelTarget() is for tests and
// benchmarks, while no codec runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

// The sets that this CPU can run, best first, e.g. "AVX2", "SSE4", "SCALAR".
std::vector<std::string> KernelTargets();
// The set in use.
std::string KernelTarget();
// Uses this set from now on; "": the best set. kInvalidArgument if it is not in KernelTargets().
Status UseKernelTarget(std::string_view name);

}  // namespace longhaul::codec
