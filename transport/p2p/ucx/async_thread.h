// UCX has one thread in a process that waits for the sockets of handshakes. An event that this
// thread finds while a UCX worker is busy goes into the worker's queue; a later event of the same
// socket may be dealt with before the worker looks into the queue. The queued event is out of date
// then, and UCX aborts the process if the endpoint has been disconnected meanwhile, or if the
// socket's descriptor belongs to another endpoint.
//
// So an endpoint is accepted while UCX's thread is held, and an endpoint is closed only after that
// thread has handled its held events.
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

// All calls are on one thread. Each waits until UCX's thread has run: microseconds where a core is
// idle, at most 1 s.
class AsyncThread {
 public:
  static StatusOr<std::unique_ptr<AsyncThread>> Create();
  ~AsyncThread();
  AsyncThread(const AsyncThread&) = delete;
  AsyncThread& operator=(const AsyncThread&) = delete;

  // Runs `make` while UCX's thread takes no events. Returns when the thread has handled the events
  // that existed at the end of `make`.
  void MakeWhileHeld(const std::function<void()>& make);
  // Returns when UCX's thread has handled every event that it held, or has left it to the next
  // ucp_worker_progress.
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
