// What a device communicator's Wait does.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_QUEUE_WAIT_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_QUEUE_WAIT_H_

#include <functional>
#include <string_view>

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/cuda/stream.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective {

struct QueueWait {
  const cuda::Device& device;
  const cuda::Event& event;    // nobody else's meanwhile
  Communicator& communicator;  // whose status ends the wait, and which is aborted when it is late
  std::string_view what;       // "a collective over NCCL"
  std::function<void()> look;  // now and then; may abort the communicator
};

// Until `queue` has done what it was given. A communicator that has ended gets a few seconds for
// its work to leave the device. Not OK: it has ended, or does now because `deadline` passed.
Status AwaitQueue(const QueueWait& wait, Queue queue, Deadline deadline);

}  // namespace longhaul::collective

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_QUEUE_WAIT_H_
