#include <algorithm>

#include "codec/cuda/tiled_device.h"
#include "codec/gauss/cuda/kernels.h"
#include "codec/gauss/factory.h"

namespace longhaul::codec::gauss {
namespace {

cuda::GaussArgs ArgsOf(const Params& params, const Shape& shape) {
  const Layout layout = MakeLayout(shape, params);
  const uint64_t tokens = uint64_t{shape.samples} * shape.tokens;
  const uint64_t short_of_token = layout.last_block < params.block ? 1 : 0;
  const uint64_t whole_of_token = layout.token_blocks - short_of_token;
  cuda::GaussArgs args{};
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
  return args;
}

uint64_t ScratchOf(const Params& params, const Shape& shape) {
  return cuda::GaussScratchBytes(shape.samples, shape.samples * MakeLayout(shape, params).blocks);
}

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  return cuda::MakeTiledDevice<cuda::GaussKernels>(params, ArgsOf, ScratchOf);
}

}  // namespace longhaul::codec::gauss
