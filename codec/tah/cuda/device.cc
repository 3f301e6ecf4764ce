#include "codec/cuda/device_codec.h"
#include "codec/tah/cuda/kernels.h"
#include "codec/tah/factory.h"

namespace longhaul::codec::tah {
namespace {

cuda::TahArgs MakeTah(const Params& params, const Shape& shape, const cuda::TensorArgs& tensor,
                      const cuda::DeviceSpan& blob) {
  const Layout layout = MakeLayout(shape, params);
  cuda::TahArgs args{};
  args.tensor = tensor;
  args.tile = params.tile;
  args.stochastic = params.rounding == Rounding::kStochastic ? 1 : 0;
  args.tau = params.tau;
  args.top_exponent = TopExponent(params);
  args.token_tiles = static_cast<uint32_t>(layout.token_tiles);
  args.token_allocs = cuda::MakeDivisor(layout.token_allocs);
  args.alloc_tiles = cuda::MakeDivisor(layout.alloc_tiles);
  args.pivot_bits = layout.pivot_bits;
  args.tiles = layout.tiles;
  args.allocs = layout.allocs;
  args.fours = layout.fours;
  args.pivot_bytes = layout.pivot_bytes;
  args.precision_bytes = layout.precision_bytes;
  args.scales = layout.scales;
  args.zeros = layout.zeros;
  args.pivots = layout.pivots;
  args.precision = layout.precision;
  args.codes = layout.codes;
  args.fourth_bits = layout.fourth_bits;
  args.end = layout.end;
  args.blob_dev = blob.start();
  return args;
}

class TahDevice final : public cuda::DeviceCodec {
 public:
  explicit TahDevice(const Params& params) : params_(params) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override {
    return cuda::TahScratchBytes(shape.samples, MakeLayout(shape, params_).allocs);
  }
  Status Encode(const cuda::EncodeCall& call) const override {
    cuda::TahArgs args = MakeTah(params_, call.in.shape, cuda::MakeTensorArgs(call.in), call.blob);
    args.header = call.header;
    args.scratch_dev = call.workspace.start();
    cuda::SetNoise(call.context, args.noise);
    return call.queue.Run(call.queue.kernels<cuda::TahKernels>().encode, args,
                          "queueing the encoder of tah");
  }
  Status Decode(const cuda::DecodeCall& call) const override {
    cuda::TahArgs args =
        MakeTah(params_, call.out.shape, cuda::MakeTensorArgs(call.out), call.blob);
    args.fault_dev = call.fault_dev;
    return call.queue.Run(call.queue.kernels<cuda::TahKernels>().decode, args,
                          "queueing the decoder of tah");
  }

 private:
  Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return std::make_unique<TahDevice>(params);
}

}  // namespace longhaul::codec::tah
