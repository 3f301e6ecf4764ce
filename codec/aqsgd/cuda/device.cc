#include "codec/aqsgd/cuda/kernels.h"
#include "codec/aqsgd/factory.h"
#include "codec/cuda/device_codec.h"

namespace longhaul::codec::aqsgd {
namespace {

cuda::AqsgdArgs MakeAqsgd(const Params& params, const Shape& shape, const cuda::TensorArgs& tensor,
                          const cuda::DeviceSpan& blob, const cuda::DeviceSpan& scratch,
                          const cuda::DeviceMessages& messages) {
  const Layout layout = MakeLayout(shape, params);
  cuda::AqsgdArgs args{};
  args.tensor = tensor;
  args.bits = params.bits;
  args.tiles_per_token = cuda::MakeDivisor(layout.tiles_per_token);
  args.tokens = cuda::MakeDivisor(shape.tokens);
  args.checks = layout.checks;
  args.kinds = layout.kinds;
  args.exponents = layout.exponents;
  args.variable = layout.variable;
  args.scales_bytes = layout.scales_bytes;
  args.whole_bytes = layout.whole_bytes;
  args.difference_bytes = layout.difference_bytes;
  args.record_bytes = RecordBytes(shape);
  args.blob_dev = blob.start();
  args.entries_dev = static_cast<const Entry*>(messages.entries.data_dev);
  args.records_dev = messages.records.start();
  args.scratch_dev = scratch.start();
  return args;
}

class AqsgdDevice final : public cuda::DeviceCodec {
 public:
  explicit AqsgdDevice(const Params& params) : params_(params) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override {
    return cuda::AqsgdScratchBytes(shape.samples, shape.channels);
  }
  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::AqsgdArgs args = MakeAqsgd(params_, call.in.shape, cuda::MakeTensorArgs(call.in),
                                     call.blob, call.workspace, call.messages);
    args.header = call.header;
    return call.queue.Run(call.queue.kernels<cuda::AqsgdKernels>().encode, args,
                          "queueing the encoder of aqsgd");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    cuda::AqsgdArgs args = MakeAqsgd(params_, call.out.shape, cuda::MakeTensorArgs(call.out),
                                     call.blob, call.workspace, call.messages);
    args.payload_bytes = call.header->payload_bytes;
    args.fault_dev = call.fault_dev;
    return call.queue.Run(call.queue.kernels<cuda::AqsgdKernels>().decode, args,
                          "queueing the decoder of aqsgd");
  }

 private:
  Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return std::make_unique<AqsgdDevice>(params);
}

}  // namespace longhaul::codec::aqsgd
