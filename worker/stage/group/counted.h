// What a rank's collectives send and take, by kind: counted around a communicator's calls.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_COUNTED_H_
#define LONGHAUL_WORKER_STAGE_GROUP_COUNTED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/collective/communicator.h"

namespace longhaul::worker {

// Since it was made, of all communicators that count into it. On the rank's thread.
struct RankUse {
  std::array<uint64_t, 6> sent_bytes{};  // as they went, by collective::Op
  double seconds = 0;  // of a rank of the CPU inside calls; calls of a GPU are queued and take none

  uint64_t SentBytes(collective::Op op) const { return sent_bytes[static_cast<size_t>(op)]; }
  RankUse& operator+=(const RankUse& more);
  RankUse operator-(const RankUse& before) const;
};

std::shared_ptr<collective::Communicator> Counted(std::shared_ptr<collective::Communicator> below,
                                                  std::shared_ptr<RankUse> use);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_COUNTED_H_
