// UCX has one thread in each process that waits for events of the sockets of handshakes. If this
// thread finds an event while a UCX worker is busy, it puts the event into the worker's queue. A
// later event of the same socket may be handled before the worker looks into its queue; then the
// queued event is out of date. UCX aborts the process on such an event if the endpoint has been
// disconnected meanwhile, or if the socket's descriptor now belongs to another endpoint.
//
// So with this class a caller accepts an endpoint while UCX's thread is held, and closes an
// endpoint only after UCX's thread has handled its pending events.
#pragma once

#include <ucs/sys/event_set.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::transport::ucx {

// All calls are on one thread. They wait until UCX's thread has run: Flush once, MakeWhileHeld
// three times. A wait takes microseconds if a core is idle. After 1 s it ends even if UCX's thread
// has not run.
class AsyncThread {
 public:
  // kUnavailable: UCX's thread cannot watch a descriptor.
  static StatusOr<std::unique_ptr<AsyncThread>> Create();
  ~AsyncThread();
  AsyncThread(const AsyncThread&) = delete;
  AsyncThread& operator=(const AsyncThread&) = delete;

  // Runs `make` while UCX's thread is held, so that it takes no events. Then waits until the thread
  // has handled the events that existed at the end of `make`.
  void MakeWhileHeld(const std::function<void()>& make);
  // Returns when UCX's thread has handled every event that it had, or has left the event to the
  // next ucp_worker_progress.
  void Flush();

 private:
  explicit AsyncThread(UniqueFd fd) : fd_(std::move(fd)) {}
  static void OnRing(int fd, ucs_event_set_types_t events, void* arg);  // on UCX's thread

  const UniqueFd fd_;  // an eventfd that UCX's thread watches
  bool watched_ = false;
  std::mutex mutex_;  // guards the three members below
  std::condition_variable changed_;
  uint64_t answers_ = 0;
  bool hold_ = false;
};

}  // namespace longhaul::transport::ucx
