// The parts of a payload (format.h) that are addressed bit by bit, the pivots and precision bits,
// and the section of fourth bits. This section has a slot for each allocation tile with 4 bits,
// with room for plane 3 of each of its tiles.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/tah/format.h"

namespace longhaul::codec::tah::cpu {

inline bool GetBit(const std::byte* bits, uint64_t index) {
  return ((static_cast<uint32_t>(bits[index / 8]) >> (index % 8)) & 1) != 0;
}

inline void SetBit(std::byte* bits, uint64_t index) {
  bits[index / 8] |= std::byte{1} << (index % 8);
}

// Writes the `width` <= 8 bits of `value` at bit position `first`. The written bits must have been
// zero before.
inline void PutBits(std::byte* bits, uint64_t first, uint32_t width, uint32_t value) {
  const uint32_t shifted = value << (first % 8);
  bits[first / 8] |= static_cast<std::byte>(shifted & 0xff);
  if (first % 8 + width > 8) bits[first / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
}

// Returns `width` <= 8 bits from bit position `first`.
inline uint32_t TakeBits(const std::byte* bits, uint64_t first, uint32_t width) {
  auto value = static_cast<uint32_t>(bits[first / 8]);
  if (first % 8 + width > 8) value |= static_cast<uint32_t>(bits[first / 8 + 1]) << 8;
  return (value >> (first % 8)) & ((1u << width) - 1);
}

// Returns the index, in its sample, of the allocation tile that contains this tile of the sample.
inline uint64_t AllocOfTile(const Layout& layout, uint64_t tile) {
  return tile / layout.token_tiles * layout.token_allocs +
         tile % layout.token_tiles / layout.alloc_tiles;
}

// Returns how many of the first `count` bits are set. `bits` consists of whole words of 64 bits.
inline uint64_t CountBits(const std::byte* bits, uint64_t count) {
  uint64_t set = 0;
  for (uint64_t first = 0; first < count; first += 64) {
    uint64_t word = 0;
    std::memcpy(&word, bits + first / 8, 8);
    const uint64_t used = count - first;
    if (used < 64) word &= (uint64_t{1} << used) - 1;
    set += static_cast<uint64_t>(std::popcount(word));
  }
  return set;
}

// Returns whether a sample's precision bits are valid: layout.fours bits are set, and none of them
// is behind the last allocation tile.
inline bool PrecisionFits(const Layout& layout, const std::byte* precision) {
  return CountBits(precision, layout.allocs) == layout.fours &&
         CountBits(precision, layout.precision_bytes * 8) == layout.fours;
}

// Walks through the tiles of a sample, and finds plane 3 of each tile. Byte: [const] std::byte.
template <class Byte>
class FourthBits {
 public:
  // `first_tile`: the tile, counted in the sample, of the first call of Next(). It must be the
  // first tile of an allocation tile.
  FourthBits(const Layout& layout, Byte* payload, uint32_t sample, uint64_t first_tile)
      : layout_(layout),
        precision_(payload + layout.precision + sample * layout.precision_bytes),
        alloc_(AllocOfTile(layout, first_tile)),
        slot_(payload + layout.fourth_bits +
              (sample * layout.fours + CountBits(precision_, alloc_)) * slot_bytes()),
        token_tile_(first_tile % layout.token_tiles) {}

  uint64_t slot_bytes() const { return layout_.alloc_tiles * layout_.plane_bytes; }

  // Returns plane 3 of the next tile; null if the tile has 3 bits. Sets *partial to true if the
  // plane is the first of a slot that has room for more tiles than its allocation tile has, else to
  // false.
  Byte* Next(bool* partial) {
    *partial = false;
    if (left_ == 0) {
      if (plane_ != nullptr) slot_ += slot_bytes();
      left_ = std::min(layout_.alloc_tiles, layout_.token_tiles - token_tile_);
      plane_ = GetBit(precision_, alloc_++) ? slot_ : nullptr;
      *partial = plane_ != nullptr && left_ < layout_.alloc_tiles;
    } else if (plane_ != nullptr) {
      plane_ += layout_.plane_bytes;
    }
    --left_;
    if (++token_tile_ == layout_.token_tiles) token_tile_ = 0;
    return plane_;
  }

 private:
  const Layout& layout_;
  const std::byte* precision_;
  uint64_t alloc_;         // index of the next allocation tile
  Byte* slot_;             // slot of the allocation tile, or the next slot if the tile has 3 bits
  Byte* plane_ = nullptr;  // plane 3 of the tile
  uint64_t left_ = 0;      // tiles left in the allocation tile
  uint64_t token_tile_;    // index of the next tile in its token
};

}  // namespace longhaul::codec::tah::cpu
