#include "base/cuda/stream.h"

#include <fmt/core.h>

#include <thread>

namespace longhaul::cuda {
namespace {

// The runtime's own waits have no deadline.
constexpr std::chrono::microseconds kPoll(20);

}  // namespace

StatusOr<Stream> Stream::Create(const Device& device) {
  void* stream = nullptr;
  LH_RETURN_IF_ERROR(
      device.Check(device.table().stream_create(device.index(), &stream), "making a stream"));
  return Stream(device, Handle(stream, {device.table().stream_destroy}));
}

Stream Stream::Borrow(const Device& device, void* handle) {
  return Stream(device, Handle(handle, {[](void*) { return 0; }}));
}

Status Stream::Copy(void* to, const void* from, size_t bytes) {
  return device_.Check(device_.table().copy(to, from, bytes, handle()),
                       fmt::format("copying {} bytes", bytes));
}

Status Stream::WaitFor(const Event& event) {
  return device_.Check(device_.table().stream_wait(handle(), event.handle()),
                       "making a stream wait for an event");
}

StatusOr<Event> Event::Create(const Device& device, Times times) {
  void* event = nullptr;
  LH_RETURN_IF_ERROR(
      device.Check(device.table().event_create(device.index(), times == Times::kKept, &event),
                   "making an event"));
  return Event(device, Handle(event, {device.table().event_destroy}));
}

Status Event::Record(const Stream& stream) {
  return device_.Check(device_.table().event_record(handle(), stream.handle()),
                       "recording an event");
}

Status Event::Await(Deadline deadline) const {
  while (true) {
    bool done = false;
    LH_RETURN_IF_ERROR(
        device_.Check(device_.table().event_query(handle(), &done), "waiting for its work"));
    if (done) return absl::OkStatus();
    if (deadline.Expired()) {
      return DeadlineExceeded("{} did not finish its work in time", device_.Name());
    }
    std::this_thread::sleep_for(kPoll);
  }
}

StatusOr<absl::Duration> Event::Since(const Event& start) const {
  float milliseconds = 0;
  LH_RETURN_IF_ERROR(device_.Check(
      device_.table().event_elapsed(start.handle(), handle(), &milliseconds), "reading a time"));
  return absl::Milliseconds(milliseconds);
}

}  // namespace longhaul::cuda
