// What the ranks of a tensor-parallel group exchange by.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_COMMUNICATORS_H_
#define LONGHAUL_WORKER_STAGE_GROUP_COMMUNICATORS_H_

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/status.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"
#include "worker/stage/group/counted.h"

namespace longhaul::worker {

// Of one rank. All three may be the same; the others may compress what `exact` carries.
struct RankCommunicators {
  std::shared_ptr<collective::Communicator> exact;     // losses, gradients that ranks share
  std::shared_ptr<collective::Communicator> forward;   // sums of hidden states
  std::shared_ptr<collective::Communicator> backward;  // sums of their gradients
  bool recordable = true;                              // no call waits on the host
  // What the others send by it, uncounted by `use`; null: nothing.
  collective::Blobs* blobs = nullptr;
  // What all three have sent beside that, where somebody counts it (counted.h).
  std::shared_ptr<RankUse> use;
};

// Called on every rank's thread, on all at once.
using MakeCommunicators = std::function<StatusOr<RankCommunicators>(
    std::shared_ptr<collective::Member> member, const DeviceName& device, Deadline deadline)>;

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_COMMUNICATORS_H_
