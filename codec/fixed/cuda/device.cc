#include "codec/cuda/tiled_device.h"
#include "codec/fixed/cuda/kernels.h"
#include "codec/fixed/factory.h"

namespace longhaul::codec::fixed {
namespace {

cuda::FixedArgs ArgsOf(const Params& params, const Shape& shape) {
  const Layout layout = MakeLayout(shape, params);
  cuda::FixedArgs args{};
  args.bits = params.bits;
  args.tile = params.tile;
  args.stochastic = params.rounding == Rounding::kStochastic ? 1 : 0;
  args.tiles_per_token = cuda::MakeDivisor(layout.tiles_per_token);
  args.tokens = cuda::MakeDivisor(shape.tokens);
  args.scales = layout.scales;
  args.codes = layout.codes;
  args.end = layout.end;
  return args;
}

uint64_t ScratchOf(const Params& params, const Shape& shape) {
  return cuda::FixedScratchBytes(shape.samples, MakeLayout(shape, params).tiles);
}

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return cuda::MakeTiledDevice<cuda::FixedKernels>(params, ArgsOf, ScratchOf);
}

}  // namespace longhaul::codec::fixed
