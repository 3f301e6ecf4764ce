// Implements Wait for device communicators.
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
  Communicator& communicator;  // the wait ends when its group ends; aborted at the deadline
  std::string_view what;       // "a collective over NCCL"
  std::function<void()> look;  // polled; may abort the communicator
};

// Waits until `queue` is done. After the communicator ends, its work gets a few seconds to leave
// the device. An error means that it has ended, or ends now because `deadline` passed.
Status AwaitQueue(const QueueWait& wait, Queue queue, Deadline deadline);

}  // namespace longhaul::collective
