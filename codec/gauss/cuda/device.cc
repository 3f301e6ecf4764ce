#include <algorithm>

#include "codec/cuda/device_codec.h"
#include "codec/gauss/cuda/kernels.h"
#include "codec/gauss/factory.h"

namespace longhaul::codec::gauss {
namespace {

cuda::GaussArgs MakeGauss(const Params& params, const Shape& shape, const cuda::TensorArgs& tensor,
                          const cuda::DeviceSpan& blob) {
  const Layout layout = MakeLayout(shape, params);
  const uint64_t tokens = uint64_t{shape.samples} * shape.tokens;
  const uint64_t short_of_token = layout.last_block < params.block ? 1 : 0;
  const uint64_t whole_of_token = layout.token_blocks - short_of_token;
  cuda::GaussArgs args{};
  args.tensor = tensor;
  args.bits = params.bits;
  args.block = params.block;
  args.last_block = layout.last_block;
  args.whole_blocks = tokens * whole_of_token;
  args.last_blocks = tokens * short_of_token;
  args.whole_of_token = cuda::MakeDivisor(std::max<uint64_t>(whole_of_token, 1));
  args.blocks_of_token = cuda::MakeDivisor(layout.token_blocks);
  args.tokens = cuda::MakeDivisor(shape.tokens);
  args.token_bytes = layout.token_bytes;
  args.scales = layout.scales;
  args.codes = layout.codes;
  args.end = layout.end;
  args.blob_dev = blob.start();
  return args;
}

class GaussDevice final : public cuda::DeviceCodec {
 public:
  explicit GaussDevice(const Params& params) : params_(params) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override {
    return cuda::GaussScratchBytes(shape.samples,
                                   shape.samples * MakeLayout(shape, params_).blocks);
  }
  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::GaussArgs args =
        MakeGauss(params_, call.in.shape, cuda::MakeTensorArgs(call.in), call.blob);
    args.header = call.header;
    args.scratch_dev = call.workspace.start();
    return call.queue.Run(call.queue.kernels<cuda::GaussKernels>().encode, args,
                          "queueing the encoder of gauss");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    cuda::GaussArgs args =
        MakeGauss(params_, call.out.shape, cuda::MakeTensorArgs(call.out), call.blob);
    args.fault_dev = call.fault_dev;
    return call.queue.Run(call.queue.kernels<cuda::GaussKernels>().decode, args,
                          "queueing the decoder of gauss");
  }

 private:
  Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return std::make_unique<GaussDevice>(params);
}

}  // namespace longhaul::codec::gauss
