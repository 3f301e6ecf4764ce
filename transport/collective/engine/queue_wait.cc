#include "transport/collective/engine/queue_wait.h"

#include <thread>

namespace longhaul::collective {
namespace {

// How long work that an ended communicator had on the device may still take.
constexpr absl::Duration kEndLimit = absl::Seconds(5);
// The queue is looked at without a pause for so long: calls are often that short.
constexpr absl::Duration kQueueBusyWait = absl::Microseconds(200);
constexpr std::chrono::microseconds kQueuePause(20);

}  // namespace

Status AwaitQueue(const QueueWait& wait, Queue queue, Deadline deadline) {
  const cuda::DeviceTable& table = wait.device.table();
  LH_RETURN_IF_ERROR(wait.device.Check(table.event_record(wait.event.handle(), queue.stream),
                                       "recording an event"));
  const MonoTime began = Now();
  Deadline limit = deadline;
  bool ended = false;
  Status late;
  while (true) {
    bool done = false;
    LH_RETURN_IF_ERROR(wait.device.Check(table.event_query(wait.event.handle(), &done),
                                         "waiting for a collective"));
    if (!ended && !wait.communicator.status().ok()) {
      ended = true;
      limit = Deadline::After(kEndLimit);
    }
    if (done || (ended && limit.Expired())) return late.ok() ? wait.communicator.status() : late;
    if (limit.Expired()) {
      late = DeadlineExceeded(
          "{} did not end in time: another rank has not made the same call, or hangs; "
          "look at what the other ranks wait for",
          wait.what);
      wait.communicator.Abort(late);
      continue;
    }
    wait.look();
    if (Now() - began > kQueueBusyWait) std::this_thread::sleep_for(kQueuePause);
  }
}

}  // namespace longhaul::collective
