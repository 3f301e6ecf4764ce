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
  Communicator& communicator;  // aborted at the deadline; see AwaitQueue
  std::string_view what;       // for messages: "a collective over NCCL"
  std::function<void()> look;  // called again and again; may abort the communicator
};

// Waits until `queue` is done. If the communicator's group ends meanwhile, waits up to 5 s more for
// its work to leave the device. Returns an error if the group has ended, or ends now because
// `deadline` passed (kDeadlineExceeded).
Status AwaitQueue(const QueueWait& wait, Queue queue, Deadline deadline);

}  // namespace longhaul::collective
