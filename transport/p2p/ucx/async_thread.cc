#include "transport/p2p/ucx/async_thread.h"

#include <sys/eventfd.h>
#include <ucs/async/async_fwd.h>

#include <cerrno>
#include <chrono>

#include "transport/p2p/ucx/handles.h"

namespace longhaul::transport::ucx {
namespace {

// UCX's thread may get no core for a while. To go on without it is a risk, to stand still is worse.
constexpr std::chrono::seconds kPatience(1);

}  // namespace

StatusOr<std::unique_ptr<AsyncThread>> AsyncThread::Create() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) return FromErrno("cannot make an eventfd", errno);
  std::unique_ptr<AsyncThread> thread(new AsyncThread(std::move(fd)));
  // No context: UCX's thread calls the handler even while a worker is busy.
  if (const ucs_status_t status =
          ucs_async_set_event_handler(UCS_ASYNC_MODE_THREAD_SPINLOCK, thread->fd_.get(),
                                      UCS_EVENT_SET_EVREAD, &OnRing, thread.get(), nullptr);
      status != UCS_OK) {
    return FromUcs("UCX does not watch an eventfd", status);
  }
  thread->watched_ = true;
  return thread;
}

AsyncThread::~AsyncThread() {
  constexpr int kWaitForTheHandler = 1;
  if (watched_) ucs_async_remove_handler(fd_.get(), kWaitForTheHandler);
}

void AsyncThread::MakeWhileHeld(const std::function<void()>& make) {
  {
    const std::lock_guard lock(mutex_);
    hold_ = true;
  }
  Flush();
  make();
  {
    const std::lock_guard lock(mutex_);
    hold_ = false;
  }
  changed_.notify_all();
  // UCX's thread takes events in batches: the first answer may come out of the same one as the
  // endpoint's first event, the second comes out of a later one.
  Flush();
  Flush();
}

void AsyncThread::Flush() {
  std::unique_lock lock(mutex_);
  const uint64_t before = answers_;
  eventfd_write(fd_.get(), 1);
  changed_.wait_for(lock, kPatience, [&] { return answers_ != before; });
}

void AsyncThread::OnRing(int fd, ucs_event_set_types_t, void* arg) {
  eventfd_t rings = 0;
  if (eventfd_read(fd, &rings) != 0) return;
  auto* const self = static_cast<AsyncThread*>(arg);
  std::unique_lock lock(self->mutex_);
  ++self->answers_;
  self->changed_.notify_all();
  self->changed_.wait(lock, [self] { return !self->hold_; });
}

}  // namespace longhaul::transport::ucx
