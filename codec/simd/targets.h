// Which instruction sets the codecs' kernels are compiled for, and which one runs. By default the
// best that the CPU has; the bytes are the same on all of them.
//
// Threads: KernelTarget() may be called from any thread. UseKernelTarget() is for tests and
// benchmarks, while no codec runs.
#ifndef LONGHAUL_CODEC_SIMD_TARGETS_H_
#define LONGHAUL_CODEC_SIMD_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

// Those that this CPU can run, best first, e.g. "AVX2", "SSE4", "SCALAR".
std::vector<std::string> KernelTargets();
// The one that runs.
std::string KernelTarget();
// From now on this one; "" the best again. kInvalidArgument for one that is not in KernelTargets().
Status UseKernelTarget(std::string_view name);

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_SIMD_TARGETS_H_
