// A stream is a queue of work on a GPU. An event marks a point in a stream, for which other streams
// and the host can wait. Work on one stream runs in order. Different streams run concurrently,
// unless one waits for an event of another.
//
//   LH_RETURN_IF_ERROR(copy.Copy(buffer.data_dev(), pinned.span().data(), bytes));
//   LH_RETURN_IF_ERROR(event.Record(copy));
//   LH_RETURN_IF_ERROR(compute.WaitFor(event));    // on the device: returns at once
//   LH_RETURN_IF_ERROR(event.Await(deadline));     // on the host
//
// Move-only. Not thread-safe: one thread at a time uses a stream or an event.
// Errors: kInternal (Device::Check), unless a function says otherwise. A call may fail because of
// work that was queued earlier. The process then cannot use the device any more (device_lost.h).
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/cuda/handle.h"
#include "base/status.h"

namespace longhaul::cuda {

class Event;

class Stream {
 public:
  static StatusOr<Stream> Create(const Device& device);
  // Wraps `handle`, a cudaStream_t of `device`; null is the default stream. Does not take
  // ownership: the stream must live as long as the result is used.
  static Stream Borrow(const Device& device, void* handle);

  const Device& device() const { return device_; }
  // The cudaStream_t, still owned by this object.
  void* handle() const { return stream_.get(); }

  // Queues a copy. Both buffers must live until the copy is done. The call returns at once if both
  // are device or pinned memory. Otherwise the call may block.
  Status Copy(void* to, const void* from, size_t bytes);
  // Makes work that is queued on this stream from now on wait for the point that `event` marks now.
  // Does not block the calling thread.
  Status WaitFor(const Event& event);

 private:
  Stream(const Device& device, Handle stream) : device_(device), stream_(std::move(stream)) {}
  Device device_;
  Handle stream_;
};

class Event {
 public:
  // kKept: the device records the time of the event, for Since. kNone: no time, which is cheaper.
  enum class Times { kNone, kKept };
  static StatusOr<Event> Create(const Device& device, Times times = Times::kNone);

  void* handle() const { return event_.get(); }

  // Makes the event mark the end of the work that is queued on `stream` now.
  Status Record(const Stream& stream);
  // Blocks until the work before the mark is done. Returns OK at once if Record was never called.
  // kDeadlineExceeded: the work is not done by `deadline`.
  Status Await(Deadline deadline) const;
  // Returns the device's time from `start` to this event, exact to about 0.5 us. Both events must
  // be done and made with kKept.
  StatusOr<absl::Duration> Since(const Event& start) const;

 private:
  Event(const Device& device, Handle event) : device_(device), event_(std::move(event)) {}
  Device device_;
  Handle event_;
};

}  // namespace longhaul::cuda
