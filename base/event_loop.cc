#include "base/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/notification.h"

namespace longhaul {
namespace {

constexpr int kProgressCallsAtOnce = 16;

}  // namespace

StatusOr<std::shared_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll_fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd) return FromErrno("cannot make an epoll descriptor", errno);
  UniqueFd wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd) return FromErrno("cannot make an event descriptor", errno);
  UniqueFd timer_fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_fd) return FromErrno("cannot make a timer descriptor", errno);
  std::shared_ptr<EventLoop> loop(
      new EventLoop(std::move(epoll_fd), std::move(wake_fd), std::move(timer_fd)));
  const auto clear = [](int fd) {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(fd, &count, sizeof(count));
  };
  LH_RETURN_IF_ERROR(loop->Watch(loop->wake_fd_.get(), EPOLLIN,
                                 [clear, fd = loop->wake_fd_.get()](uint32_t) { clear(fd); }));
  // Run() then runs the timers.
  LH_RETURN_IF_ERROR(
      loop->Watch(loop->timer_fd_.get(), EPOLLIN, [clear, self = loop.get()](uint32_t) {
        clear(self->timer_fd_.get());
        self->armed_for_ = MonoTime::max();
      }));
  return loop;
}

bool EventLoop::Post(Task task) {
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    wake = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (wake && !InLoop()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_fd_.get(), &one, sizeof(one));
  }
  return true;
}

EventLoop::TimerId EventLoop::AddTimer(MonoTime time, Task task) {
  const TimerId id(time, ++next_timer_);
  timers_.emplace(id, std::move(task));
  return id;
}

Status EventLoop::Watch(int fd, uint32_t events, std::function<void(uint32_t)> callback) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return FromErrno("cannot watch a descriptor", errno);
  }
  watches_[fd] = std::make_shared<std::function<void(uint32_t)>>(std::move(callback));
  return absl::OkStatus();
}

Status EventLoop::ChangeEvents(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return absl::OkStatus();
  return FromErrno("cannot watch a descriptor for other events", errno);
}

void EventLoop::Unwatch(int fd) {
  if (watches_.erase(fd) != 0) epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Status EventLoop::SetPoller(Poller* poller) {
  if (poller_ != nullptr) Unwatch(poller_->fd());
  poller_ = poller;
  // Waking up is all that the descriptor is for; Run() calls Progress in any case.
  return poller == nullptr ? absl::OkStatus() : Watch(poller->fd(), EPOLLIN, [](uint32_t) {});
}

bool EventLoop::RunTasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  // Only what was queued at entry: a task that posts tasks must not keep I/O from running.
  for (Task& task : tasks) {
    task();
    task = nullptr;  // what it holds goes before the next one runs
  }
  return !tasks.empty();
}

void EventLoop::RunTimers() {
  const MonoTime now = this->now();
  const uint64_t last = next_timer_;  // timers added meanwhile wait for the next round
  while (!timers_.empty() && timers_.begin()->first.first <= now &&
         timers_.begin()->first.second <= last) {
    const Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

bool EventLoop::RunPoller() {
  for (int i = 0; poller_ != nullptr && i < kProgressCallsAtOnce; ++i) {
    if (!poller_->Progress()) return false;
    // A poller that is never idle must not keep waiting what other threads ask for: a short message
    // would go out behind many long ones.
    RunTasks();
  }
  return poller_ != nullptr;
}

// A timeout of epoll_wait would have the kernel set and remove a timer each time that the loop
// sleeps. In a virtual machine this takes a tenth of what a busy link costs.
bool EventLoop::ArmTimer() {
  if (timers_.empty()) return true;
  const MonoTime first = timers_.begin()->first.first;
  if (first <= Now()) return false;
  if (first == armed_for_) return true;
  constexpr int64_t kSecond = 1'000'000'000;
  itimerspec time{};
  time.it_value.tv_sec = first.nanoseconds() / kSecond;
  time.it_value.tv_nsec = first.nanoseconds() % kSecond;
  LH_CHECK(timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &time, nullptr) == 0,
           "the kernel takes every time after now");
  armed_for_ = first;
  return true;
}

void EventLoop::Wait(bool block) {
  const int timeout_ms = block && ArmTimer() ? -1 : 0;
  if (watched_ && timeout_ms != 0) watched_->Rests();
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(epoll_fd_.get(), events.data(), events.size(), timeout_ms);
  if (watched_) watched_->Turned();
  // A callback may close a descriptor and watch another one of the same number, which the events of
  // the old one behind it are not for.
  std::array<std::shared_ptr<std::function<void(uint32_t)>>, events.size()> watched;
  for (int i = 0; i < count; ++i) {
    const auto watch = watches_.find(events[i].data.fd);
    if (watch != watches_.end()) watched[i] = watch->second;
  }
  for (int i = 0; i < count; ++i) {
    const auto watch = watches_.find(events[i].data.fd);
    if (watch == watches_.end() || watch->second != watched[i]) continue;
    (*watched[i])(events[i].events);
    watched[i].reset();  // what it holds goes before the next one runs
  }
}

void EventLoop::Run() {
  thread_id_.store(std::this_thread::get_id());
  if (watched_) watched_->Turned();
  while (true) {
    RunTasks();
    const bool more = RunPoller();
    RunTimers();
    bool idle = !more;
    {
      const std::lock_guard lock(mutex_);
      if (!tasks_.empty()) {
        idle = false;
      } else if (stop_) {
        ended_ = true;
        break;
      }
    }
    if (idle && poller_ != nullptr && !poller_->Arm()) idle = false;
    Wait(idle);
  }
  timers_.clear();
  watched_.reset();
}

void EventLoop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_.get(), &one, sizeof(one));
}

EventLoopThread::EventLoopThread(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {
  // Signals belong to the threads of the program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([state = loop_] { state->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "lh-loop");
}

StatusOr<std::shared_ptr<EventLoopThread>> EventLoopThread::Start(const std::string& watched_as,
                                                                  absl::Duration limit) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<EventLoop> loop, EventLoop::Create());
  if (!watched_as.empty()) loop->watched_.emplace(watched_as, limit);
  return std::shared_ptr<EventLoopThread>(new EventLoopThread(std::move(loop)));
}

EventLoopThread::~EventLoopThread() {
  loop_->Stop();
  if (loop_->InLoop()) {
    thread_.detach();  // a thread cannot join itself; it ends after the running task
  } else {
    thread_.join();
  }
}

StatusOr<std::unique_ptr<ManualLoop>> ManualLoop::Create(MonoTime now) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<EventLoop> loop, EventLoop::Create());
  loop->thread_id_.store(std::this_thread::get_id());
  loop->manual_now_ = now;
  return std::unique_ptr<ManualLoop>(new ManualLoop(std::move(loop)));
}

ManualLoop::~ManualLoop() {
  // These may hold the loop themselves.
  const auto timers = std::exchange(loop_->timers_, {});
  const auto tasks = std::exchange(loop_->tasks_, {});
}

bool ManualLoop::Step(MonoTime limit) {
  while (loop_->RunTasks()) {
  }
  const bool more = !loop_->timers_.empty() && loop_->timers_.begin()->first.first <= limit;
  loop_->manual_now_ =
      more ? std::max(*loop_->manual_now_, loop_->timers_.begin()->first.first) : limit;
  if (more) loop_->RunTimers();
  while (loop_->RunTasks()) {
  }
  return more;
}

void EventLoopThread::RunAndWait(EventLoop::Task task) {
  LH_CHECK(!loop_->InLoop(), "waiting for the loop on the loop would never end");
  Notification ran;
  loop_->Post([&] {
    task();
    ran.Notify();
  });
  ran.Wait();
}

}  // namespace longhaul
