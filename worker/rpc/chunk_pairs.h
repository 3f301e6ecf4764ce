// Which cells of a run give each other chunks of data sets. The cells of a replica that read text
// (the first stage and the last; with data.mask: document all) need the same chunks at nearly the
// same time. The first stage reads every window first: it fetches a chunk that another one asks it
// for. So each of the others is paired with the first. The plan says nothing of that: a pair that
// cannot reach each other gives each other nothing. Pure.
#ifndef LONGHAUL_WORKER_RPC_CHUNK_PAIRS_H_
#define LONGHAUL_WORKER_RPC_CHUNK_PAIRS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "run/plan/plan.h"

namespace longhaul::worker {

// A cell with which this cell exchanges chunks.
struct ChunkPair {
  CellId peer;
  std::string peer_worker;     // its name
  bool fetches_for = false;    // this cell is the first stage
  std::string transport;       // the plan's name
  double bits_per_second = 0;  // of what this cell sends; 0: nothing is known

  // Links between the two, of which one is enough. Who dials is known of neighbours alone: others
  // try both ways.
  struct Way {
    EdgeId number;  // of this pair and way, for both ends; no edge of the plan
    bool dials = false;
    std::vector<std::string> addresses;  // that it dials
  };
  std::vector<Way> ways;
};

// None where `me` reads no text. `all_read`: every stage does.
std::vector<ChunkPair> ChunkPairsOf(const Assignment& assignment, const CellId& me, bool all_read);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_CHUNK_PAIRS_H_
