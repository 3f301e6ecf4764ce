// The GPU part of the codecs fixed, tah and gauss. Each has one function that queues its encoder,
// and one that queues its decoder. The arguments of both functions follow from the codec's
// parameters and the tensor's shape.
//
// Threads and errors: as for DeviceCodec.
#pragma once

#include <memory>
#include <string>

#include "codec/cuda/device_codec.h"

namespace longhaul::codec::cuda {

// The family's cuda/kernels.h defines `Kernels` and `Args`.
template <class Kernels, class Params, class Args>
class TiledDevice final : public DeviceCodec {
 public:
  // `args_of` makes the kernels' arguments; Encode and Decode then set memory, header and noise.
  // `scratch_of` returns the bytes of device memory that the encoder needs, a multiple of 64.
  TiledDevice(const Params& params, Args (*args_of)(const Params& params, const Shape& shape),
              uint64_t (*scratch_of)(const Params& params, const Shape& shape))
      : params_(params), args_of_(args_of), scratch_of_(scratch_of) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override { return scratch_of_(params_, shape); }
  Status Encode(const EncodeCall& call) const override {
    Args args = ArgsFor(MakeTensorArgs(call.in), call.in.shape, call.blob);
    args.header = call.header;
    args.scratch_dev = call.workspace.start();
    if constexpr (requires { args.noise; }) SetNoise(call.context, args.noise);
    return call.queue.Run(call.queue.kernels<Kernels>().encode, args, encoding_);
  }
  Status Decode(const DecodeCall& call) const override {
    Args args = ArgsFor(MakeTensorArgs(call.out), call.out.shape, call.blob);
    args.fault_dev = call.fault_dev;
    return call.queue.Run(call.queue.kernels<Kernels>().decode, args, decoding_);
  }

 private:
  Args ArgsFor(const TensorArgs& tensor, const Shape& shape, const DeviceSpan& blob) const {
    Args args = args_of_(params_, shape);
    args.tensor = tensor;
    args.blob_dev = blob.start();
    return args;
  }

  const Params params_;
  Args (*const args_of_)(const Params& params, const Shape& shape);
  uint64_t (*const scratch_of_)(const Params& params, const Shape& shape);
  const std::string encoding_ = std::string("queueing the encoder of ") + Kernels::kName;
  const std::string decoding_ = std::string("queueing the decoder of ") + Kernels::kName;
};

template <class Kernels, class Params, class Args>
std::unique_ptr<const DeviceCodec> MakeTiledDevice(
    const Params& params, Args (*args_of)(const Params& params, const Shape& shape),
    uint64_t (*scratch_of)(const Params& params, const Shape& shape)) {
  return std::make_unique<TiledDevice<Kernels, Params, Args>>(params, args_of, scratch_of);
}

}  // namespace longhaul::codec::cuda
