#include "codec/dither/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codec/dither/tables.h"
#include "codec/tile.h"

namespace longhaul::codec::dither {
namespace {

// Bits in 1024ths to words of 16 bits.
constexpr uint64_t Words(uint64_t elements, uint32_t bits) {
  return elements * bits / (1024 * 16);
}

struct Sizes {
  uint32_t usual, most;
};
template <int kHalfBits>
constexpr Sizes kSizes = {Tables<kHalfBits>::kUsual, Tables<kHalfBits>::kMost};

Sizes SizesOf(const Params& params) {
  return ForHalfBits(params.half_bits, []<int kHalfBits>() { return kSizes<kHalfBits>; });
}

}  // namespace

Layout MakeLayout(const Shape& shape, const Params& params) {
  const uint64_t tokens = uint64_t{shape.samples} * shape.tokens;
  Layout layout;
  layout.token_blocks = (uint64_t{shape.channels} + params.block - 1) / params.block;
  const uint64_t whole = (layout.token_blocks - 1) * params.block;
  layout.last_block =
      std::max(kMinBlock, static_cast<uint32_t>(std::bit_ceil(shape.channels - whole)));
  layout.token_elements = whole + layout.last_block;
  layout.blocks = tokens * layout.token_blocks;
  layout.groups = (layout.blocks + kGroupBlocks - 1) / kGroupBlocks;
  const uint64_t largest_block = layout.token_blocks > 1 ? params.block : layout.last_block;
  const uint64_t elements = std::min<uint64_t>(kGroupBlocks, layout.blocks) * largest_block;
  // A state may begin with a bit less than it ends with.
  layout.group_words = Words(elements, SizesOf(params).most) + kLanes / 16;
  layout.ends = 16;
  layout.exponents = layout.ends + AlignSection(8 * layout.groups);
  layout.states = layout.exponents + AlignSection(2 * layout.groups);
  layout.words = layout.states + 4 * kLanes * layout.groups;
  return layout;
}

uint64_t PayloadBytes(const Layout& layout, uint64_t words) {
  return layout.words + AlignSection(2 * words);
}

uint64_t UsualWords(const Shape& shape, const Params& params) {
  const Layout layout = MakeLayout(shape, params);
  const uint64_t words =
      Words(uint64_t{shape.samples} * shape.tokens * layout.token_elements, SizesOf(params).usual);
  // When all is coded, 8 bits of a lane's state are in use on average.
  return words - std::min(words, layout.groups * kLanes / 2);
}

std::string CodecString(const Params& params) {
  return fmt::format("dither:bits={},block={}", params.half_bits / 2.0, params.block);
}

bool Possible(const Params& params) {
  const uint32_t twice = params.half_bits;
  return (twice == 2 || twice == 3 || twice == 4 || twice == 6) && params.block >= kMinBlock &&
         params.block <= kMaxBlock && std::has_single_bit(params.block);
}

CodecParameters ToHeader(const Params& params) {
  CodecParameters parameters{};
  parameters[0] = static_cast<std::byte>(params.half_bits);
  StoreU16(static_cast<uint16_t>(params.block), &parameters[2]);
  return parameters;
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  const Params params{.half_bits = static_cast<uint32_t>(parameters[0]),
                      .block = LoadU16(&parameters[2])};
  if (!Possible(params) || ToHeader(params) != parameters) {
    return InvalidArgument("the blob's parameters of dither are impossible: bits {}, block {}",
                           params.half_bits / 2.0, params.block);
  }
  return params;
}

}  // namespace longhaul::codec::dither
