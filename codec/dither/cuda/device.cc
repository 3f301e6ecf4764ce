#include "codec/cuda/device_codec.h"
#include "codec/dither/cuda/kernels.h"
#include "codec/dither/factory.h"

namespace longhaul::codec::dither {
namespace {

class DitherDevice final : public cuda::DeviceCodec {
 public:
  explicit DitherDevice(const Params& params) : params_(params) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override {
    const Layout layout = MakeLayout(shape, params_);
    return cuda::DitherScratchBytes(layout.groups, layout.group_words);
  }
  bool decodes_unseen() const override { return true; }
  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::DitherArgs args = ArgsFor(cuda::MakeTensorArgs(call.in), call.in.shape, call.blob);
    args.header = call.header;
    args.scratch_dev = call.workspace.start();
    cuda::SetNoise(call.context, args.noise);
    return call.queue.Run(call.queue.kernels<cuda::DitherKernels>().encode, args,
                          "queueing the encoder of dither");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    cuda::DitherArgs args = ArgsFor(cuda::MakeTensorArgs(call.out), call.out.shape, call.blob);
    args.fault_dev = call.fault_dev;
    args.most_payload_bytes = call.blob.bytes - kBlobHeaderBytes;
    if (call.header != nullptr) args.payload_bytes = call.header->payload_bytes;
    return call.queue.Run(call.queue.kernels<cuda::DitherKernels>().decode, args,
                          "queueing the decoder of dither");
  }

 private:
  cuda::DitherArgs ArgsFor(const cuda::TensorArgs& tensor, const Shape& shape,
                           const cuda::DeviceSpan& blob) const {
    const Layout layout = MakeLayout(shape, params_);
    cuda::DitherArgs args{};
    args.tensor = tensor;
    args.half_bits = params_.half_bits;
    args.block = params_.block;
    args.last_block = layout.last_block;
    args.token_blocks = cuda::MakeDivisor(layout.token_blocks);
    args.token_elements = layout.token_elements;
    args.blocks = layout.blocks;
    args.groups = layout.groups;
    args.group_words = layout.group_words;
    args.ends = layout.ends;
    args.exponents = layout.exponents;
    args.states = layout.states;
    args.words = layout.words;
    args.blob_dev = blob.start();
    return args;
  }

  const Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return std::make_unique<DitherDevice>(params);
}

}  // namespace longhaul::codec::dither
