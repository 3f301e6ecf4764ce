// predict on a GPU: its own kernels before and behind those of the codec that codes the
// differences. For cuda_codec.cc, which has checked the tensor and all memory.
#ifndef LONGHAUL_CODEC_CUDA_CUDA_PREDICT_H_
#define LONGHAUL_CODEC_CUDA_CUDA_PREDICT_H_

#include <cstdint>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/device_tables.h"
#include "codec/cuda/kernel_table.h"

namespace longhaul::codec::cuda {

// kInvalidArgument where they do not fit the tensor, or for too many tokens for the kernels.
// `kind`: any codec.
Status CheckTables(const DeviceTables* tables, const BlobHeader& kind, const Shape& shape);
// Without the other codec's.
uint64_t PredictWorkspaceBytes(const Shape& shape, const BlobHeader& kind);

struct PredictParts {
  const CudaCodec& codec;  // of the differences
  const BlobHeader& kind;  // of predict. Decode: the blob's header
  HeaderArgs header = {};  // encode
};
Status EncodePredicted(const PredictParts& parts, const TensorView& in, const Context& context,
                       DeviceSpan workspace, DeviceSpan blob, const longhaul::cuda::Stream& stream,
                       const DeviceTables* tables);
Status DecodePredicted(const PredictParts& parts, DeviceSpan blob, DeviceSpan workspace,
                       const MutableTensorView& out, uint32_t* fault_dev,
                       const longhaul::cuda::Stream& stream, const DeviceTables* tables);

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_CUDA_PREDICT_H_
