// A thread that runs timers, callbacks of file descriptors, one poller, and tasks that any thread
// posts. The poller is for a library such as UCX, which makes progress only when it is called.
//
// Threads: Post and InLoop from any thread; all other functions of EventLoop on the loop's thread.
// Ownership: an EventLoopThread owns the thread. When its last shared_ptr is gone, the thread runs
// the tasks that were posted before, and ends. Its destructor waits for this end, unless it runs on
// the loop's thread. The EventLoop is the state of the loop and may outlive the thread. The loop
// drops tasks that are posted after the end, and timers that have not run by then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/watchdog.h"

namespace longhaul {

// A library that makes progress only when the loop calls it, with a descriptor to sleep on. The
// loop calls all functions on its thread.
class Poller {
 public:
  virtual ~Poller() = default;
  // Returns a descriptor that becomes readable when there is work.
  virtual int fd() const = 0;
  // Works for a short time. True: there may be more work, so the loop calls Progress again.
  virtual bool Progress() = 0;
  // The loop calls Arm before it sleeps on fd(). False: there is work already, so the loop calls
  // Progress instead of sleeping.
  virtual bool Arm() = 0;
};

class EventLoop {
 public:
  using Task = std::function<void()>;
  using TimerId = std::pair<MonoTime, uint64_t>;

  // Makes a loop without a thread, for EventLoopThread and ManualLoop. Errors: by errno, such as
  // kResourceExhausted if the process has too many descriptors.
  static StatusOr<std::shared_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs `task` later on the loop's thread, never inside this call. Tasks run in the order of the
  // calls. False: the loop has ended, and the task is dropped.
  bool Post(Task task);
  bool InLoop() const { return std::this_thread::get_id() == thread_id_.load(); }

  // The clock of the loop's timers: Now(), or the time that a ManualLoop was set to.
  MonoTime now() const { return manual_now_ ? *manual_now_ : Now(); }

  // Runs `task` once, at `time` (of now()) or later. The id is for CancelTimer.
  TimerId AddTimer(MonoTime time, Task task);
  // Does nothing if the timer has already run.
  void CancelTimer(TimerId id) { timers_.erase(id); }

  // Calls `callback` with the epoll events whenever `fd` is ready. `events` as in epoll_ctl(2), so
  // level-triggered without EPOLLET. Does not own `fd`: call Unwatch before you close `fd`. Errors:
  // by errno, such as kAlreadyExists if the loop watches `fd` already.
  Status Watch(int fd, uint32_t events, std::function<void(uint32_t)> callback);
  // Watches `fd`, which must be watched, for other events with the same callback. Errors: by errno.
  Status ChangeEvents(int fd, uint32_t events);
  // Destroys the callback of `fd`. Does nothing if `fd` is not watched.
  void Unwatch(int fd);

  // Replaces the poller. Null only removes the old one. Does not own the poller, which must live
  // until it is replaced or the loop has ended. Errors: those of Watch.
  Status SetPoller(Poller* poller);

 private:
  friend class EventLoopThread;
  friend class ManualLoop;
  EventLoop(UniqueFd epoll_fd, UniqueFd wake_fd, UniqueFd timer_fd)
      : epoll_fd_(std::move(epoll_fd)),
        wake_fd_(std::move(wake_fd)),
        timer_fd_(std::move(timer_fd)) {}
  void Run();
  void Stop();
  bool RunTasks();
  void RunTimers();
  // Calls Progress until idle or for a bounded number of calls, so that a flood leaves room for
  // tasks and timers. True if there may be more.
  bool RunPoller();
  void Wait(bool block);
  // Has timer_fd_ wake the loop for the first timer. False: its time has come.
  bool ArmTimer();

  const UniqueFd epoll_fd_;
  const UniqueFd wake_fd_;
  const UniqueFd timer_fd_;
  MonoTime armed_for_ = MonoTime::max();  // when timer_fd_ becomes readable
  std::atomic<std::thread::id> thread_id_;
  std::optional<WatchedLoop> watched_;  // used by Run

  std::mutex mutex_;  // guards the three members below
  std::vector<Task> tasks_;
  bool stop_ = false;
  bool ended_ = false;

  std::map<TimerId, Task> timers_;
  uint64_t next_timer_ = 0;
  std::unordered_map<int, std::shared_ptr<std::function<void(uint32_t)>>> watches_;
  Poller* poller_ = nullptr;
  std::optional<MonoTime> manual_now_;
};

class EventLoopThread {
 public:
  // Starts a thread that runs a new loop. Signals are blocked in the thread. `watched_as`: a name
  // for the watchdog (watchdog.h): the loop hangs if one round of its callbacks takes longer than
  // `limit`. Empty: nobody watches the loop. Errors: those of EventLoop::Create.
  static StatusOr<std::shared_ptr<EventLoopThread>> Start(const std::string& watched_as = "",
                                                          absl::Duration limit = kLoopHangs);
  ~EventLoopThread();
  EventLoopThread(const EventLoopThread&) = delete;
  EventLoopThread& operator=(const EventLoopThread&) = delete;

  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  // Runs `task` on the loop's thread and waits until it is done. Must not be called on that thread.
  void RunAndWait(EventLoop::Task task);

 private:
  explicit EventLoopThread(std::shared_ptr<EventLoop> loop);
  std::shared_ptr<EventLoop> loop_;
  std::thread thread_;
};

// A loop for simulations, without a thread. The simulation calls Step, on the thread that made the
// loop, and Step runs tasks and timers. The loop's clock stands still between these calls.
// Callbacks of descriptors never run.
class ManualLoop {
 public:
  // `now`: the first time of the loop's clock. Errors: those of EventLoop::Create.
  static StatusOr<std::unique_ptr<ManualLoop>> Create(MonoTime now);
  // Drops tasks and timers that have not run.
  ~ManualLoop();
  ManualLoop(const ManualLoop&) = delete;
  ManualLoop& operator=(const ManualLoop&) = delete;
  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  // Runs the posted tasks, sets the clock to the next timer, and runs the timers that are due then
  // and the tasks that they post. False: no timer is due by `limit`, and the clock is now `limit`.
  bool Step(MonoTime limit);

 private:
  explicit ManualLoop(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  const std::shared_ptr<EventLoop> loop_;
};

}  // namespace longhaul
