// Decides which cells of a run exchange chunks of data sets. A cell is a stage of one replica. The
// first and the last stage read text; with `data.mask: document` all stages do. Within a replica
// these cells need the same chunks at nearly the same time, and the first stage needs each chunk
// first. So the first stage forms a pair with each of the other cells, and fetches the chunks that
// they request. The plan does not contain these pairs, and does not make sure that they can
// connect. Two cells that cannot reach each other, or only by a relay, exchange nothing. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/plan/plan.h"

namespace longhaul::worker {

// A cell that this cell exchanges chunks with.
struct ChunkPair {
  CellId peer;
  std::string peer_worker;     // name of the peer's worker
  bool fetches_for = false;    // this cell is the first stage, and fetches what the peer requests
  std::string transport;       // name of the transport for the pair's link
  double bits_per_second = 0;  // lowest rate at which this cell sends over its edges; 0: unknown

  // A possible link between the two cells; one open link is enough. If the plan has an edge between
  // them, there is one way, and the plan says which cell dials. Otherwise there is a way for each
  // direction of dialling, if the dialled cell has an address.
  struct Way {
    EdgeId number;                       // the same at both ends; not an edge of the plan
    bool dials = false;                  // this cell dials
    std::vector<std::string> addresses;  // of the peer; may be empty if this cell does not dial
  };
  std::vector<Way> ways;  // empty: neither cell has an address, so no link is possible
};

// Returns the pairs of cell `me`; empty if `me` reads no text. `all_read`: every stage reads text.
std::vector<ChunkPair> ChunkPairsOf(const Assignment& assignment, const CellId& me, bool all_read);

}  // namespace longhaul::worker
