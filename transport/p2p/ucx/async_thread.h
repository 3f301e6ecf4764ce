// The thread on which UCX itself waits for the sockets of handshakes. What it finds while a worker
// is busy it leaves in a queue, and it deals with the next event of the same socket itself. The
// worker then takes out of the queue what is no longer so, and aborts the process if the endpoint
// has been disconnected meanwhile, or if its descriptor belongs to another one.
//
// So an accepted endpoint is made while this thread stands still, and an endpoint is closed after
// it has let go of what it held.
#ifndef LONGHAUL_TRANSPORT_P2P_UCX_ASYNC_THREAD_H_
#define LONGHAUL_TRANSPORT_P2P_UCX_ASYNC_THREAD_H_

#include <ucs/sys/event_set.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::transport::ucx {

// One thread calls, which waits for UCX's thread to get a core: microseconds where one is idle.
class AsyncThread {
 public:
  static StatusOr<std::unique_ptr<AsyncThread>> Create();
  ~AsyncThread();
  AsyncThread(const AsyncThread&) = delete;
  AsyncThread& operator=(const AsyncThread&) = delete;

  // Runs `make` while UCX's thread takes no events, and returns when it has dealt with those that
  // there were at the end of `make`.
  void MakeWhileHeld(const std::function<void()>& make);
  // Returns when UCX's thread has dealt with every event that it held, or has left it to the next
  // ucp_worker_progress.
  void Flush();

 private:
  explicit AsyncThread(UniqueFd fd) : fd_(std::move(fd)) {}
  static void OnRing(int fd, ucs_event_set_types_t events, void* arg);  // on UCX's thread
  void Ring() const;

  const UniqueFd fd_;  // an eventfd that UCX's thread watches
  bool watched_ = false;
  std::mutex mutex_;  // the three below
  std::condition_variable changed_;
  uint64_t answers_ = 0;
  bool hold_ = false;
};

}  // namespace longhaul::transport::ucx

#endif  // LONGHAUL_TRANSPORT_P2P_UCX_ASYNC_THREAD_H_
