// Stores the codes of a tile as bit planes. A code is the small integer to which a codec quantizes
// an element. Plane j holds bit j of every code: the bit of element k is bit k % 8 of byte k / 8 of
// the plane. So codes of any number of bits are packed without gaps, and a GPU makes 32 bits of a
// plane with one warp vote (ballot). kTile is the number of elements, a multiple of 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace longhaul::codec {

// Writes bit `bit` of kTile codes to kTile / 8 bytes.
template <int kTile>
inline void PackPlane(const uint8_t* codes, int bit, std::byte* plane) {
  for (int group = 0; group < kTile / 8; ++group) {
    uint64_t eight = 0;
    std::memcpy(&eight, codes + 8 * group, 8);
    // The product's top byte collects the eight low bits in order.
    const uint64_t bits = ((eight >> bit) & 0x0101010101010101) * 0x0102040810204080;
    plane[group] = static_cast<std::byte>(bits >> 56);
  }
}

// Sets bit `bit` of each of kTile codes that has a 1 in the plane, and keeps all other bits.
template <int kTile>
inline void UnpackPlane(const std::byte* plane, int bit, uint8_t* codes) {
  for (int group = 0; group < kTile / 8; ++group) {
    uint64_t eight = 0;
    std::memcpy(&eight, codes + 8 * group, 8);
    const uint64_t spread =
        (static_cast<uint64_t>(plane[group]) * 0x0101010101010101) & 0x8040201008040201;
    eight |= (((spread + 0x7f7f7f7f7f7f7f7f) >> 7) & 0x0101010101010101) << bit;
    std::memcpy(codes + 8 * group, &eight, 8);
  }
}

}  // namespace longhaul::codec
