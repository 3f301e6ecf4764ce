#include "codec/cuda/cuda_taco.h"

#include <algorithm>

#include "codec/cuda/kernel_queue.h"
#include "codec/taco/checks.h"
#include "codec/taco/cuda/flat_args.h"
#include "codec/taco/cuda/kernels.h"

namespace longhaul::codec::cuda {

static_assert(kTacoMostParts == kMaxTacoParts);

Status TacoEncodeFlat(const void* in_dev, Dtype dtype, uint64_t elements,
                      const taco::Params& params, DeviceSpan payload,
                      const longhaul::cuda::Stream& stream, uint64_t* nonfinite_dev) {
  LH_RETURN_IF_ERROR(taco::CheckFlat("an input", in_dev, dtype, elements, params, payload.data_dev,
                                     payload.bytes));
  if (elements == 0) return absl::OkStatus();
  // The encoder only reads the elements.
  TacoFlatArgs args =
      MakeTacoFlat(params, const_cast<void*>(in_dev), dtype, elements, payload.data_dev);
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  args.nonfinite_dev = reinterpret_cast<unsigned long long*>(nonfinite_dev);
  const KernelQueue queue(stream);
  return queue.Run(queue.kernels<TacoKernels>().encode_flat, args, "queueing the encoder of taco");
}

Status TacoDecodeFlat(DeviceSpan payload, const taco::Params& params, void* out_dev, Dtype dtype,
                      uint64_t elements, const longhaul::cuda::Stream& stream) {
  LH_RETURN_IF_ERROR(taco::CheckFlat("an output", out_dev, dtype, elements, params,
                                     payload.data_dev, payload.bytes));
  if (elements == 0) return absl::OkStatus();
  const TacoFlatArgs args = MakeTacoFlat(params, out_dev, dtype, elements, payload.data_dev);
  const KernelQueue queue(stream);
  return queue.Run(queue.kernels<TacoKernels>().decode_flat, args, "queueing the decoder of taco");
}

Status TacoReduce(const TacoReduceArgs& args, const longhaul::cuda::Stream& stream) {
  LH_RETURN_IF_ERROR(taco::CheckReduce(args));
  if (args.elements == 0) return absl::OkStatus();
  TacoSumArgs kernel_args{};
  std::ranges::copy(args.parts, kernel_args.parts_dev);
  kernel_args.parts = static_cast<uint32_t>(args.parts.size());
  kernel_args.own = static_cast<uint32_t>(args.own);
  kernel_args.flat = MakeTacoFlat(args.params, args.out, args.dtype, args.elements,
                                  args.out_payload.empty() ? nullptr : args.out_payload.data());
  const KernelQueue queue(stream);
  return queue.Run(queue.kernels<TacoKernels>().reduce, kernel_args,
                   "queueing the reduction of taco");
}

}  // namespace longhaul::codec::cuda
