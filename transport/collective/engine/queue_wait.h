// Implements Communicator::Wait for device communicators.
#pragma once

#include <functional>
#include <string_view>

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/cuda/stream.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective {

struct QueueWait {
  const cuda::Device& device;
  const cuda::Event& event;    // nothing else uses it during the wait
  Communicator& communicator;  // its group ends if the deadline passes
  std::string_view what;       // for messages: "a collective over NCCL"
  std::function<void()> look;  // called again and again on this thread; may abort the communicator
};

// Waits until `queue` is done. If `deadline` passes, aborts the communicator and returns
// kDeadlineExceeded. If the group has ended for another reason, returns kAborted with that reason.
// After the end of the group waits at most 5 s for the queue. kInternal: CUDA failed.
Status AwaitQueue(const QueueWait& wait, Queue queue, Deadline deadline);

}  // namespace longhaul::collective
