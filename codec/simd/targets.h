// The instruction sets for which the codecs' CPU kernels are compiled, and the set in use. By
// default the best set that this CPU can run is in use. All sets give the same bytes.
//
// Threads: any thread may call KernelTargets() and KernelTarget(). UseKernelTarget() is for tests
// and benchmarks; call it only while no codec runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

// Returns the sets that this CPU can run, best first, e.g. "AVX2", "SSE4", "SCALAR".
std::vector<std::string> KernelTargets();
// Returns the set in use.
std::string KernelTarget();
// Uses the set `name` from now on in the whole program; "": the best one. Returns kInvalidArgument
// if the set is not in KernelTargets().
Status UseKernelTarget(std::string_view name);

}  // namespace longhaul::codec
