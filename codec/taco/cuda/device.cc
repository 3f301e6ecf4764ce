#include "codec/cuda/device_codec.h"
#include "codec/taco/cuda/flat_args.h"
#include "codec/taco/cuda/kernels.h"
#include "codec/taco/factory.h"

namespace longhaul::codec::taco {
namespace {

// Offset of the header's count of tiles that are not finite.
constexpr size_t kNonfiniteOffset = 48;

cuda::TacoArgs MakeTaco(const Params& params, const TensorView& tensor,
                        const cuda::DeviceSpan& blob) {
  cuda::TacoArgs args{};
  args.blob_dev = blob.start();
  args.flat = cuda::MakeTacoFlat(params, const_cast<void*>(tensor.data), tensor.dtype,
                                 tensor.shape.elements(), args.blob_dev + kBlobHeaderBytes);
  args.flat.nonfinite_dev = reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset);
  return args;
}

class TacoDevice final : public cuda::DeviceCodec {
 public:
  explicit TacoDevice(const Params& params) : params_(params) {}

  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::TacoArgs args = MakeTaco(params_, call.in, call.blob);
    args.header = call.header;
    return call.queue.Run(call.queue.kernels<cuda::TacoKernels>().encode, args,
                          "queueing the encoder of taco");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    const cuda::TacoArgs args =
        MakeTaco(params_, {call.out.data, call.out.dtype, call.out.shape}, call.blob);
    return call.queue.Run(call.queue.kernels<cuda::TacoKernels>().decode, args,
                          "queueing the decoder of taco");
  }

 private:
  Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return std::make_unique<TacoDevice>(params);
}

}  // namespace longhaul::codec::taco
