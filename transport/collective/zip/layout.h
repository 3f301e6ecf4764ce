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

// A part that goes to a peer: `count` bf16 elements. The part's blob lies at
// Layout::offsets[blob]; peers that get the same part have the same `blob`.
struct Sending {
  const std::byte* data = nullptr;
  uint64_t count = 0;
  uint32_t blob = 0;
};
struct Receiving {
  std::byte* data = nullptr;
  uint64_t count = 0;
};

// The blobs of one piece, by peer: offsets in bytes, and counts of elements. `bytes`: the size of
// all blobs together.
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
// Returns the layout of piece `piece`. The offsets are the same for all pieces: each blob gets the
// room that it needs in the first piece, which is the largest.
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
