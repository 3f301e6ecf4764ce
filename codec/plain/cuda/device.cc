#include "codec/plain/cuda/device.h"

#include "codec/cuda/device_codec.h"
#include "codec/plain/cuda/kernels.h"
#include "codec/plain/factory.h"
#include "codec/plain/format.h"

namespace longhaul::codec::plain {
namespace {

class PlainDevice final : public cuda::DeviceCodec {
 public:
  explicit PlainDevice(Dtype wire) : wire_(wire) {}

  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::PlainArgs args{};
    args.tensor = cuda::MakeTensorArgs(call.in);
    args.header = call.header;
    args.wire_dtype = static_cast<uint32_t>(wire_);
    args.blob_dev = call.blob.start();
    return call.queue.Run(call.queue.kernels<cuda::PlainKernels>().encode, args,
                          "queueing an encoder");
  }
  Status Decode(const cuda::DecodeCall& call) const override { return DecodeElements(call, wire_); }

 private:
  Dtype wire_;
};

}  // namespace

Status DecodeElements(const cuda::DecodeCall& call, Dtype wire) {
  cuda::PlainArgs args{};
  args.tensor = cuda::MakeTensorArgs(call.out);
  args.wire_dtype = static_cast<uint32_t>(wire);
  args.blob_dev = call.blob.start();
  return call.queue.Run(call.queue.kernels<cuda::PlainKernels>().decode, args,
                        "queueing a decoder");
}

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  return std::make_unique<PlainDevice>(WireDtype(codec.kind().id));
}

}  // namespace longhaul::codec::plain
