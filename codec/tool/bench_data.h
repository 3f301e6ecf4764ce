// What benchmarks encode.
#ifndef LONGHAUL_CODEC_TOOL_BENCH_DATA_H_
#define LONGHAUL_CODEC_TOOL_BENCH_DATA_H_

#include "base/status.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// About normal, with a large value here and there, as activations have them; the same every time.
StatusOr<NpyArray> MakeActivations(Dtype dtype, const Shape& shape);

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_TOOL_BENCH_DATA_H_
