// A thread that runs timers, callbacks of file descriptors, one poller, and tasks that any thread
// posts. The poller is for a library such as UCX, which makes progress only when it is called.
//
// Threads: Post from any thread; everything else on the loop's own thread.
// Ownership: EventLoopThread is the running thread. When the last shared_ptr to it is gone, the
// thread runs the tasks that were posted before, and ends. The destructor waits for this end,
// except on the loop's own thread. EventLoop is the state, which may outlive the thread. Tasks that
// are posted after the end, and timers that have not run by then, are dropped.
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

namespace longhaul {

// A library that makes progress only when called, with a descriptor to sleep on.
class Poller {
 public:
  virtual ~Poller() = default;
  // Returns a descriptor that becomes readable when there is work.
  virtual int fd() const = 0;
  // Works for a short time. True: it made progress, so call it again.
  virtual bool Progress() = 0;
  // Call it before sleeping on fd(). False: there is work already; call Progress instead.
  virtual bool Arm() = 0;
};

class EventLoop {
 public:
  using Task = std::function<void()>;
  using TimerId = std::pair<MonoTime, uint64_t>;

  static StatusOr<std::shared_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs `task` on the loop's thread, in the order of the calls. False: the loop has ended, and the
  // task is dropped.
  bool Post(Task task);
  bool InLoop() const { return std::this_thread::get_id() == thread_id_.load(); }

  // The clock of the loop's timers: Now(), or the time that a ManualLoop was set to.
  MonoTime now() const { return manual_now_ ? *manual_now_ : Now(); }

  // Runs `task` once, at `time` or later.
  TimerId AddTimer(MonoTime time, Task task);
  // Does nothing if the timer has already run.
  void CancelTimer(TimerId id) { timers_.erase(id); }

  // Calls `callback` with the epoll events whenever `fd` is ready (level-triggered unless `events`
  // says otherwise). Does not own `fd`: call Unwatch before you close it.
  Status Watch(int fd, uint32_t events, std::function<void(uint32_t)> callback);
  void Unwatch(int fd);

  // Replaces the poller. Null only removes the old one. A poller must live until it is replaced
  // or the loop has ended.
  Status SetPoller(Poller* poller);

 private:
  friend class EventLoopThread;
  friend class ManualLoop;
  EventLoop(int epoll_fd, int wake_fd) : epoll_fd_(epoll_fd), wake_fd_(wake_fd) {}
  void Run();
  void Stop();
  bool RunTasks();
  void RunTimers();
  // Calls Progress until idle or for a bounded number of calls, so that a flood leaves room for
  // tasks and timers. True if there may be more.
  bool RunPoller();
  void Wait(bool block);

  const int epoll_fd_;
  const int wake_fd_;
  std::atomic<std::thread::id> thread_id_;

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
  static StatusOr<std::shared_ptr<EventLoopThread>> Start();
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

// A loop for simulations. It has no thread: the simulation calls Step, on the thread that made the
// loop. Its clock stands still between the calls. Tasks and timers run; descriptors are not
// watched.
class ManualLoop {
 public:
  static StatusOr<std::unique_ptr<ManualLoop>> Create(MonoTime now);
  // Drops tasks and timers that have not run.
  ~ManualLoop();
  ManualLoop(const ManualLoop&) = delete;
  ManualLoop& operator=(const ManualLoop&) = delete;
  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  // Runs the posted tasks, sets the clock to the next timer, and runs the timers that are due then.
  // False: no timer is due by `limit`, and the clock is now `limit`.
  bool Step(MonoTime limit);

 private:
  explicit ManualLoop(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  const std::shared_ptr<EventLoop> loop_;
};

}  // namespace longhaul
