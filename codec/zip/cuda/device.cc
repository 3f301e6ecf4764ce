#include "codec/plain/cuda/device.h"

#include "codec/cuda/device_codec.h"
#include "codec/zip/cuda/kernels.h"
#include "codec/zip/factory.h"
#include "codec/zip/format.h"

namespace longhaul::codec::zip {
namespace {

cuda::ZipArgs MakeZip(const cuda::TensorArgs& tensor, const Shape& shape,
                      const cuda::DeviceSpan& blob, const cuda::DeviceSpan& scratch) {
  const Layout layout = MakeLayout(shape.elements());
  cuda::ZipArgs args{};
  args.tensor = tensor;
  args.elements = shape.elements();
  args.groups = layout.groups;
  args.lows = layout.lows;
  args.signs = layout.signs;
  args.codes = layout.codes;
  args.plane_bytes = layout.plane_bytes;
  args.escapes = layout.escapes;
  args.raw = layout.raw;
  args.most_escapes = layout.most_escapes;
  args.may_be_smaller = layout.may_be_smaller ? 1 : 0;
  args.blob_dev = blob.start();
  args.scratch_dev = scratch.start();
  return args;
}

class ZipDevice final : public cuda::DeviceCodec {
 public:
  uint64_t WorkspaceBytes(const Shape& shape) const override {
    return cuda::ZipScratchBytes(MakeLayout(shape.elements()).groups);
  }
  bool decodes_unseen() const override { return true; }
  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::ZipArgs args =
        MakeZip(cuda::MakeTensorArgs(call.in), call.in.shape, call.blob, call.workspace);
    args.header = call.header;
    return call.queue.Run(call.queue.kernels<cuda::ZipKernels>().encode, args,
                          "queueing the encoder of zip");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    cuda::ZipArgs args =
        MakeZip(cuda::MakeTensorArgs(call.out), call.out.shape, call.blob, call.workspace);
    args.fault_dev = call.fault_dev;
    if (call.header == nullptr) {
      args.most_payload_bytes = call.blob.bytes - kBlobHeaderBytes;
    } else if (call.header->payload_bytes == args.raw) {
      return plain::DecodeElements(call, Dtype::kBf16);
    } else {
      args.payload_bytes = call.header->payload_bytes;
    }
    return call.queue.Run(call.queue.kernels<cuda::ZipKernels>().decode, args,
                          "queueing the decoder of zip");
  }
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& /*codec*/) {
  return std::make_unique<ZipDevice>();
}

}  // namespace longhaul::codec::zip
