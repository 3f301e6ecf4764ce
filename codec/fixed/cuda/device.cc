#include "codec/cuda/device_codec.h"
#include "codec/fixed/cuda/kernels.h"
#include "codec/fixed/factory.h"

namespace longhaul::codec::fixed {
namespace {

cuda::FixedArgs MakeFixed(const Params& params, const Shape& shape, const cuda::TensorArgs& tensor,
                          const cuda::DeviceSpan& blob) {
  const Layout layout = MakeLayout(shape, params);
  cuda::FixedArgs args{};
  args.tensor = tensor;
  args.bits = params.bits;
  args.tile = params.tile;
  args.stochastic = params.rounding == Rounding::kStochastic ? 1 : 0;
  args.tiles_per_token = cuda::MakeDivisor(layout.tiles_per_token);
  args.tokens = cuda::MakeDivisor(shape.tokens);
  args.scales = layout.scales;
  args.codes = layout.codes;
  args.end = layout.end;
  args.blob_dev = blob.start();
  return args;
}

class FixedDevice final : public cuda::DeviceCodec {
 public:
  explicit FixedDevice(const Params& params) : params_(params) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override {
    return cuda::FixedScratchBytes(shape.samples, MakeLayout(shape, params_).tiles);
  }
  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::FixedArgs args =
        MakeFixed(params_, call.in.shape, cuda::MakeTensorArgs(call.in), call.blob);
    args.header = call.header;
    args.scratch_dev = call.workspace.start();
    cuda::SetNoise(call.context, args.noise);
    return call.queue.Run(call.queue.kernels<cuda::FixedKernels>().encode, args,
                          "queueing the encoder of fixed");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    cuda::FixedArgs args =
        MakeFixed(params_, call.out.shape, cuda::MakeTensorArgs(call.out), call.blob);
    args.fault_dev = call.fault_dev;
    return call.queue.Run(call.queue.kernels<cuda::FixedKernels>().decode, args,
                          "queueing the decoder of fixed");
  }

 private:
  Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return std::make_unique<FixedDevice>(params);
}

}  // namespace longhaul::codec::fixed
