#include "codec/tah/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "codec/tile.h"

namespace longhaul::codec::tah {
namespace {

uint64_t CeilDivide(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

// The shortest decimal number that becomes the same p.
std::string FormatShare(uint32_t p_65536) {
  for (int digits = 1; digits < 7; ++digits) {
    std::string text = fmt::format("{:.{}g}", p_65536 / 65536.0, digits);
    if (std::lround(std::strtod(text.c_str(), nullptr) * 65536.0) == static_cast<long>(p_65536)) {
      return text;
    }
  }
  return fmt::format("{}", p_65536 / 65536.0);
}

}  // namespace

Layout MakeLayout(const Shape& shape, const Params& params) {
  const uint64_t samples = shape.samples;
  const uint64_t tile = params.tile;
  Layout layout;
  layout.token_tiles = CeilDivide(shape.channels, tile);
  layout.alloc_tiles = params.alloc == kWholeToken
                           ? layout.token_tiles
                           : std::min<uint64_t>(params.alloc / tile, layout.token_tiles);
  layout.token_allocs = CeilDivide(layout.token_tiles, layout.alloc_tiles);
  layout.tiles = shape.tokens * layout.token_tiles;
  layout.allocs = shape.tokens * layout.token_allocs;
  // p U stays below 2^57.
  layout.fours = (params.p_65536 * layout.allocs + 32768) / 65536;
  layout.pivot_bits = static_cast<uint32_t>(std::countr_zero(params.tile));
  layout.plane_bytes = tile / 8;
  layout.pivot_bytes = CeilDivide(layout.tiles * layout.pivot_bits, 64) * 8;
  layout.precision_bytes = CeilDivide(layout.allocs, 64) * 8;

  layout.exponents = 0;
  layout.scales = layout.exponents + AlignSection(2 * samples);
  layout.zeros = layout.scales + AlignSection(2 * samples * layout.tiles);
  layout.pivots = layout.zeros + AlignSection(2 * samples * layout.tiles);
  layout.precision = layout.pivots + AlignSection(samples * layout.pivot_bytes);
  layout.codes = layout.precision + AlignSection(samples * layout.precision_bytes);
  layout.fourth_bits = layout.codes + AlignSection(samples * layout.tiles * 3 * layout.plane_bytes);
  layout.end = layout.fourth_bits +
               AlignSection(samples * layout.fours * layout.alloc_tiles * layout.plane_bytes);
  return layout;
}

uint64_t EncodedBytes(const Shape& shape, const Params& params) {
  if (shape.samples == 0 || shape.tokens == 0 || shape.channels == 0) return kBlobHeaderBytes;
  return kBlobHeaderBytes + MakeLayout(shape, params).end;
}

int TopExponent(const Params& params) {
  return params.tau < 2 ? 11 : 12;
}

std::string CodecString(const Params& params) {
  return fmt::format("tah:p={},tile={},alloc={},tau={},rounding={}", FormatShare(params.p_65536),
                     params.tile,
                     params.alloc == kWholeToken ? "token" : std::to_string(params.alloc),
                     params.tau, ToString(params.rounding));
}

bool Possible(const Params& params) {
  const bool tau =
      (params.tau >= 0 && params.tau <= kMaxTau) || (std::isinf(params.tau) && params.tau > 0);
  return params.p_65536 <= 65536 && PossibleTile(params.tile) && params.alloc <= kMaxAlloc &&
         params.alloc % params.tile == 0 && tau &&
         (params.rounding == Rounding::kNearest || params.rounding == Rounding::kStochastic);
}

CodecParameters ToHeader(const Params& params) {
  CodecParameters parameters{};
  std::memcpy(&parameters[0], &params.p_65536, 4);
  std::memcpy(&parameters[4], &params.alloc, 4);
  std::memcpy(&parameters[8], &params.tau, 4);
  StoreU16(static_cast<uint16_t>(params.tile), &parameters[12]);
  parameters[14] = static_cast<std::byte>(params.rounding);
  return parameters;
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  Params params;
  std::memcpy(&params.p_65536, &parameters[0], 4);
  std::memcpy(&params.alloc, &parameters[4], 4);
  std::memcpy(&params.tau, &parameters[8], 4);
  params.tile = LoadU16(&parameters[12]);
  params.rounding = static_cast<Rounding>(parameters[14]);
  if (std::signbit(params.tau) || !Possible(params) || ToHeader(params) != parameters) {
    return InvalidArgument(
        "the blob's parameters of tah are impossible: p {}/65536, tile {}, alloc {}, tau {}",
        params.p_65536, params.tile, params.alloc, params.tau);
  }
  return params;
}

}  // namespace longhaul::codec::tah
