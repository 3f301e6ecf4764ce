// Streams are queues of work on a GPU; events are points in them to wait for. Work on one stream
// runs in order. Streams run concurrently unless one waits for the other's event.
//
//   LH_RETURN_IF_ERROR(copy.Copy(buffer.data_dev(), pinned.span().data(), bytes));
//   LH_RETURN_IF_ERROR(event.Record(copy));
//   LH_RETURN_IF_ERROR(compute.WaitFor(event));    // on the device: returns at once
//   LH_RETURN_IF_ERROR(event.Await(deadline));     // on the host
//
// Move-only. Not thread-safe: one thread at a time uses a stream or an event. A failure may belong
// to work queued earlier. The process cannot use the device after that.
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
  // Returns a stream of `device` that another owner keeps alive.
  static Stream Borrow(const Device& device, void* handle);

  const Device& device() const { return device_; }
  // The cudaStream_t.
  void* handle() const { return stream_.get(); }

  // Queues a copy. Returns at once if both sides are device or pinned memory; both must live until
  // the copy is done.
  Status Copy(void* to, const void* from, size_t bytes);
  // Work queued from now on runs after the newest record of `event`.
  Status WaitFor(const Event& event);

 private:
  Stream(const Device& device, Handle stream) : device_(device), stream_(std::move(stream)) {}
  Device device_;
  Handle stream_;
};

class Event {
 public:
  enum class Times { kNone, kKept };
  static StatusOr<Event> Create(const Device& device, Times times = Times::kNone);

  void* handle() const { return event_.get(); }

  // Marks the end of the work queued on `stream` now.
  Status Record(const Stream& stream);
  // Blocks until the recorded work is done. Returns at once if nothing was recorded.
  // kDeadlineExceeded.
  Status Await(Deadline deadline) const;
  // Time on the device from `start` to this event, to about half a microsecond. Both must be done
  // and keep times.
  StatusOr<absl::Duration> Since(const Event& start) const;

 private:
  Event(const Device& device, Handle event) : device_(device), event_(std::move(event)) {}
  Device device_;
  Handle event_;
};

}  // namespace longhaul::cuda
