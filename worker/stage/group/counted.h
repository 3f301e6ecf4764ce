// Counts the bytes and the time of a rank's collectives, by kind of operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/collective/communicator.h"

namespace longhaul::worker {

// Totals of all communicators that count into this object. Used on the rank's thread.
struct RankUse {
  std::array<uint64_t, 6> sent_bytes{};  // as sent (compressed), by collective::Op
  double seconds = 0;                    // inside calls, CPU ranks only; calls on a GPU are queued

  uint64_t SentBytes(collective::Op op) const { return sent_bytes[static_cast<size_t>(op)]; }
  RankUse& operator+=(const RankUse& more);
  RankUse operator-(const RankUse& before) const;
};

// Wraps `below` so that its calls count into `use`.
std::shared_ptr<collective::Communicator> Counted(std::shared_ptr<collective::Communicator> below,
                                                  std::shared_ptr<RankUse> use);

}  // namespace longhaul::worker
