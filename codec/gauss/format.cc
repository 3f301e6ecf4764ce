#include "codec/gauss/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codec/tile.h"

namespace longhaul::codec::gauss {

Layout MakeLayout(const Shape& shape, const Params& params) {
  const uint64_t samples = shape.samples;
  Layout layout;
  layout.token_blocks = (uint64_t{shape.channels} + params.block - 1) / params.block;
  const uint64_t whole = (layout.token_blocks - 1) * params.block;
  layout.last_block =
      std::max(kMinBlock, static_cast<uint32_t>(std::bit_ceil(shape.channels - whole)));
  layout.block_bytes = uint64_t{params.bits} * params.block / 8;
  layout.token_bytes = params.bits * (whole + layout.last_block) / 8;
  layout.blocks = shape.tokens * layout.token_blocks;
  layout.scales = AlignSection(2 * samples);
  layout.codes = layout.scales + AlignSection(samples * layout.blocks);
  layout.end = layout.codes + AlignSection(samples * shape.tokens * layout.token_bytes);
  return layout;
}

uint64_t EncodedBytes(const Shape& shape, const Params& params) {
  if (shape.samples == 0 || shape.tokens == 0 || shape.channels == 0) return kBlobHeaderBytes;
  return kBlobHeaderBytes + MakeLayout(shape, params).end;
}

std::string CodecString(const Params& params) {
  return fmt::format("gauss:bits={},block={}", params.bits, params.block);
}

bool Possible(const Params& params) {
  return params.bits >= kMinBits && params.bits <= kMaxBits && params.block >= kMinBlock &&
         params.block <= kMaxBlock && std::has_single_bit(params.block);
}

CodecParameters ToHeader(const Params& params) {
  CodecParameters parameters{};
  parameters[0] = static_cast<std::byte>(params.bits);
  StoreU16(static_cast<uint16_t>(params.block), &parameters[2]);
  return parameters;
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  const Params params{.bits = static_cast<uint32_t>(parameters[0]),
                      .block = LoadU16(&parameters[2])};
  if (!Possible(params)) {
    return InvalidArgument("the blob's parameters of gauss are impossible: bits {}, block {}",
                           params.bits, params.block);
  }
  if (ToHeader(params) != parameters) {
    return absl::InvalidArgumentError(
        "the blob's codes are in a coding of gauss that this program does not know");
  }
  return params;
}

}  // namespace longhaul::codec::gauss
