#include "codec/fixed/format.h"

#include <fmt/format.h>

#include <cstring>

#include "codec/tile.h"

namespace longhaul::codec::fixed {

Layout MakeLayout(const Shape& shape, const Params& params) {
  Layout layout;
  layout.tiles_per_token = (uint64_t{shape.channels} + params.tile - 1) / params.tile;
  layout.tiles = uint64_t{shape.samples} * shape.tokens * layout.tiles_per_token;
  layout.tile_bytes = uint64_t{params.bits} * params.tile / 8;
  layout.scales = AlignSection(2 * uint64_t{shape.samples});
  layout.codes = layout.scales + AlignSection(2 * layout.tiles);
  layout.end = layout.codes + AlignSection(layout.tiles * layout.tile_bytes);
  return layout;
}

uint64_t EncodedBytes(const Shape& shape, const Params& params) {
  if (shape.samples == 0 || shape.tokens == 0 || shape.channels == 0) return kBlobHeaderBytes;
  return kBlobHeaderBytes + MakeLayout(shape, params).end;
}

std::string CodecString(const Params& params) {
  return fmt::format("fixed:bits={},tile={},rounding={}", params.bits, params.tile,
                     ToString(params.rounding));
}

bool Possible(const Params& params) {
  return params.bits >= kMinBits && params.bits <= kMaxBits && PossibleTile(params.tile);
}

CodecParameters ToHeader(const Params& params) {
  CodecParameters parameters{};
  parameters[0] = static_cast<std::byte>(params.bits);
  parameters[1] = static_cast<std::byte>(params.rounding);
  StoreU16(static_cast<uint16_t>(params.tile), &parameters[2]);
  return parameters;
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  Params params;
  params.bits = static_cast<uint32_t>(parameters[0]);
  params.tile = LoadU16(&parameters[2]);
  const auto rounding = static_cast<uint32_t>(parameters[1]);
  if (!Possible(params) || rounding > 1) {
    return InvalidArgument(
        "the blob's parameters of fixed are impossible: bits {}, tile {}, rounding {}", params.bits,
        params.tile, rounding);
  }
  params.rounding = static_cast<Rounding>(rounding);
  if (ToHeader(params) != parameters) {
    return absl::InvalidArgumentError("the blob's parameters of fixed do not end in zeros");
  }
  return params;
}

}  // namespace longhaul::codec::fixed
