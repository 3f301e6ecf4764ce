// The layout of the blobs in one piece of an exchange. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/collective/zip/coder.h"

namespace longhaul::collective::zip {

// A part that goes to a peer. Peers with equal `blob` get the same blob.
struct Sending {
  const std::byte* data = nullptr;
  uint64_t count = 0;
  uint32_t blob = 0;
};
struct Receiving {
  std::byte* data = nullptr;
  uint64_t count = 0;
};

// Offsets and element counts of the blobs of one piece, by peer.
struct Layout {
  std::vector<uint64_t> offsets, counts;
  uint64_t bytes = 0;
};

// Elements in piece number `piece` of `count` elements, cut into pieces of `piece_elements`.
inline uint64_t CountAt(uint64_t count, uint64_t piece_elements, uint64_t piece) {
  const uint64_t begin = std::min(piece * piece_elements, count);
  return std::min(begin + piece_elements, count) - begin;
}
// Gives the counts of this piece and the offsets of the first piece, which is the largest.
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
