// The communicators of the ranks in a tensor-parallel group.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/status.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"
#include "worker/stage/group/counted.h"

namespace longhaul::worker {

// The communicators of one rank. All three may be the same object. `forward` and `backward` may be
// lossy.
struct RankCommunicators {
  std::shared_ptr<collective::Communicator> exact;     // for losses and gradients of parameters
  std::shared_ptr<collective::Communicator> forward;   // for hidden states
  std::shared_ptr<collective::Communicator> backward;  // for gradients of hidden states
  bool recordable = true;  // CUDA graphs can record all calls: no call waits on the host
  // MakeGroupStage sets the next two; MakeCommunicators leaves them null.
  // Counts the bytes of compressed messages, which `use` does not count; `exact` owns it. Null: no
  // such messages are sent.
  collective::Blobs* blobs = nullptr;
  // Counts all other bytes of the three communicators (counted.h).
  std::shared_ptr<RankUse> use;
};

// Makes the communicators of one rank, which computes on `device`. `member`: the rank's place in
// the group. All ranks call the function at the same time, each on its own thread, so it must be
// thread-safe. An error ends the group. The call must return by `deadline`.
using MakeCommunicators = std::function<StatusOr<RankCommunicators>(
    std::shared_ptr<collective::Member> member, const DeviceName& device, Deadline deadline)>;

}  // namespace longhaul::worker
