// Helpers that several codecs share: sections of payloads, tiles, and 16-bit numbers. A section is
// one array of a payload, and a tile is a group of elements with one scale (a codec's format.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "codec/convert.h"
#include "codec/scale.h"

namespace longhaul::codec {

// Returns the size in bytes of a section with its padding: sections start at multiples of 16 bytes.
constexpr uint64_t AlignSection(uint64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// Returns whether kernels of fixed and tah are compiled for tiles of this size.
constexpr bool PossibleTile(uint32_t elements) {
  return elements == 32 || elements == 64 || elements == 128;
}

// Tiles [first, end) of a sample. Tile numbers count from the start of the sample.
struct TileRange {
  uint32_t sample = 0;
  uint64_t first = 0, end = 0;
};

// Sets kTile values to NaN.
template <int kTile>
inline void FillNan(float* values) {
  for (int k = 0; k < kTile; ++k) values[k] = std::numeric_limits<float>::quiet_NaN();
}

// Load and store need no alignment.
inline uint16_t LoadU16(const std::byte* bytes) {
  uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline void StoreU16(uint16_t value, std::byte* bytes) {
  std::memcpy(bytes, &value, sizeof(value));
}

}  // namespace longhaul::codec
