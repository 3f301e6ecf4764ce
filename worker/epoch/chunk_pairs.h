// Decides which cells of a run exchange chunks of data sets. The cells of a replica that read text
// (the first and last stage; with data.mask: document all) need the same chunks at nearly the same
// time. The first stage needs every window first, so it also fetches chunks that other cells
// request, and each other cell is paired with it. The plan does not contain these pairs: two cells
// that cannot reach each other exchange nothing. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/plan/plan.h"

namespace longhaul::worker {

// A cell that this cell exchanges chunks with.
struct ChunkPair {
  CellId peer;
  std::string peer_worker;     // its name
  bool fetches_for = false;    // this cell is the first stage
  std::string transport;       // the plan's name
  double bits_per_second = 0;  // rate at which this cell sends; 0: unknown

  // A possible link between the two; one is enough. The plan names the dialling side only for
  // neighbours, so other pairs try both directions.
  struct Way {
    EdgeId number;  // the same at both ends; not an edge of the plan
    bool dials = false;
    std::vector<std::string> addresses;  // to dial
  };
  std::vector<Way> ways;
};

// Empty if `me` reads no text. `all_read`: every stage reads text.
std::vector<ChunkPair> ChunkPairsOf(const Assignment& assignment, const CellId& me, bool all_read);

}  // namespace longhaul::worker
