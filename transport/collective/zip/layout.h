// Where the blobs of one piece of an exchange lie. Pure.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_ZIP_LAYOUT_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_ZIP_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/collective/zip/coder.h"

namespace longhaul::collective::zip {

// What goes to a peer. Peers with the same `blob` get the same.
struct Sending {
  const std::byte* data = nullptr;
  uint64_t count = 0;
  uint32_t blob = 0;
};
struct Receiving {
  std::byte* data = nullptr;
  uint64_t count = 0;
};

// Blobs of one piece in an area: of each peer where, and how many elements.
struct Layout {
  std::vector<uint64_t> offsets, counts;
  uint64_t bytes = 0;
};

// Elements of piece number `piece` of `count`, which come in pieces of `piece_elements`.
inline uint64_t CountAt(uint64_t count, uint64_t piece_elements, uint64_t piece) {
  const uint64_t begin = std::min(piece * piece_elements, count);
  return std::min(begin + piece_elements, count) - begin;
}
// Counts of a piece's blobs, and where the blobs of the first piece, the largest, begin.
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

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_ZIP_LAYOUT_H_
