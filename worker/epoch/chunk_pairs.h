// Decides which cells of a run give each other chunks of data sets. The cells of a replica that
// read text (the first and last stage; with data.mask: document all) need the same chunks at nearly
// the same time. The first stage needs every window first, so it also fetches chunks that others
// ask it for, and each other cell is paired with it. The plan does not know these pairs: a pair
// that cannot reach each other exchanges nothing. Pure.
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
  double bits_per_second = 0;  // rate of what this cell sends; 0: unknown

  // Possible links between the two; one is enough. The plan says who dials between neighbours only,
  // so others try both directions.
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
