// Counts the bytes that a rank sends in each kind of collective, and the time inside collectives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/collective/communicator.h"

namespace longhaul::worker {

// Totals of one rank, over all communicators that count into this object. Only the rank's thread
// uses it.
struct RankUse {
  std::array<uint64_t, 6> sent_bytes{};  // after compression; index: collective::Op
  double seconds = 0;                    // inside calls; 0 on a GPU, where calls are only queued

  uint64_t SentBytes(collective::Op op) const { return sent_bytes[static_cast<size_t>(op)]; }
  RankUse& operator+=(const RankUse& more);
  RankUse operator-(const RankUse& before) const;
};

// Returns a communicator that passes calls on to `below` and counts them in `use`. Neither may be
// null; the result shares ownership of both.
std::shared_ptr<collective::Communicator> Counted(std::shared_ptr<collective::Communicator> below,
                                                  std::shared_ptr<RankUse> use);

}  // namespace longhaul::worker
