#include "codec/cuda/tiled_device.h"
#include "codec/tah/cuda/kernels.h"
#include "codec/tah/factory.h"

namespace longhaul::codec::tah {
namespace {

cuda::TahArgs ArgsOf(const Params& params, const Shape& shape) {
  const Layout layout = MakeLayout(shape, params);
  cuda::TahArgs args{};
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
  return args;
}

uint64_t ScratchOf(const Params& params, const Shape& shape) {
  return cuda::TahScratchBytes(shape.samples, MakeLayout(shape, params).allocs);
}

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return cuda::MakeTiledDevice<cuda::TahKernels>(params, ArgsOf, ScratchOf);
}

}  // namespace longhaul::codec::tah
