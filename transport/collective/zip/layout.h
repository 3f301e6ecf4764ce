// The layout of blobs in memory. Each peer's part is cut into pieces, and each piece of a part is
// one blob. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/collective/zip/coder.h"

namespace longhaul::collective::zip {

// A part that goes to a peer. If the same part goes to several peers, their `blob` is equal: the
// index of the peer in whose place the blob lies.
struct Sending {
  const std::byte* data = nullptr;
  uint64_t count = 0;
  uint32_t blob = 0;
};
struct Receiving {
  std::byte* data = nullptr;
  uint64_t count = 0;
};

// Offsets in bytes and element counts of the blobs of one piece, by peer. `bytes`: the size of all.
struct Layout {
  std::vector<uint64_t> offsets, counts;
  uint64_t bytes = 0;
};

// Returns the number of elements in piece `piece` if `count` elements are cut into pieces of
// `piece_elements`.
inline uint64_t CountAt(uint64_t count, uint64_t piece_elements, uint64_t piece) {
  const uint64_t begin = std::min(piece * piece_elements, count);
  return std::min(begin + piece_elements, count) - begin;
}
// Returns the counts of piece `piece`. Offsets are those of the first, largest piece for all
// pieces.
template <class Peer>
Layout LayoutOf(std::span<const Peer> peers, uint64_t piece_elements, uint64_t piece) {
  Layout layout;
  for (const Peer& peer : peers) {
    layout.offsets.push_back(layout.bytes);
    layout.counts.push_back(CountAt(peer.count, piece_elements, piece));
    layout.bytes += AlignBlob(MostBytes(CountAt(peer.count, piece_elements, 0)));
  }
  return layout;
}

}  // namespace longhaul::collective::zip
