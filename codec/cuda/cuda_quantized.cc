#include "codec/cuda/cuda_quantized.h"

#include "codec/cuda/device_checks.h"
#include "codec/cuda/kernel_table.h"

namespace longhaul::codec::cuda {
namespace {

Status Queue(const DequantizeArgs& args, const longhaul::cuda::Stream& stream) {
  constexpr size_t kAlignment = 16;
  if (args.elements == 0) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CheckAligned("quantized", "a stored matrix", args.stored_dev, kAlignment));
  LH_RETURN_IF_ERROR(CheckAligned("quantized", "an output", args.out_dev, kAlignment));
  const longhaul::cuda::Device& device = stream.device();
  return device.Check(
      device.table().codec_kernels->dequantize(device.index(), &args, stream.handle()),
      "queueing the dequantization of a matrix");
}

}  // namespace

Status Nf4Dequantize(const void* stored_dev, uint64_t elements, bool bf16, void* out_dev,
                     const longhaul::cuda::Stream& stream) {
  return Queue({.stored_dev = static_cast<const unsigned char*>(stored_dev),
                .elements = elements,
                .columns = 0,
                .bf16 = bf16 ? 1u : 0u,
                .out_dev = out_dev},
               stream);
}

Status Int8Dequantize(const void* stored_dev, quantized::MatrixShape shape, bool bf16,
                      void* out_dev, const longhaul::cuda::Stream& stream) {
  return Queue({.stored_dev = static_cast<const unsigned char*>(stored_dev),
                .elements = shape.rows * shape.columns,
                .columns = shape.columns,
                .bf16 = bf16 ? 1u : 0u,
                .out_dev = out_dev},
               stream);
}

}  // namespace longhaul::codec::cuda
