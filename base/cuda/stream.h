// Queues of work on a GPU and the points in them that others wait for. Work on one stream runs in
// order; streams run side by side unless one waits for the other's event.
//
//   LH_RETURN_IF_ERROR(copy.Copy(buffer.data_dev(), pinned.span().data(), bytes));
//   LH_RETURN_IF_ERROR(event.Record(copy));
//   LH_RETURN_IF_ERROR(compute.WaitFor(event));    // on the device: returns at once
//   LH_RETURN_IF_ERROR(event.Await(deadline));     // on the host
//
// Move-only. Not thread-safe: one thread at a time uses a stream or an event. A failure may be one
// of work that was queued earlier; the device is then of no more use to the process.
#ifndef LONGHAUL_BASE_CUDA_STREAM_H_
#define LONGHAUL_BASE_CUDA_STREAM_H_

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

  const Device& device() const { return device_; }
  // The cudaStream_t.
  void* handle() const { return stream_.get(); }

  // Queues a copy; returns before it is done where both sides are device or pinned memory. Until
  // then neither side may go.
  Status Copy(void* to, const void* from, size_t bytes);
  // What is queued from now on runs after what `event` recorded last.
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

  // Marks the end of what is queued on `stream` now.
  Status Record(const Stream& stream);
  // Blocks until what was recorded is done; at once when nothing was. kDeadlineExceeded.
  Status Await(Deadline deadline) const;
  // From `start` to this one on the device, to about half a microsecond. Both are done and keep
  // times.
  StatusOr<absl::Duration> Since(const Event& start) const;

 private:
  Event(const Device& device, Handle event) : device_(device), event_(std::move(event)) {}
  Device device_;
  Handle event_;
};

}  // namespace longhaul::cuda

#endif  // LONGHAUL_BASE_CUDA_STREAM_H_
