// A thread that runs tasks posted by any thread, timers, callbacks of file descriptors, and one
// poller. The poller is for libraries such as UCX that make progress only when called.
//
// Threads: Post from any thread; everything else on the loop's own thread.
// Ownership: EventLoopThread is the running thread. It stops when the last shared_ptr to it goes;
// dropped on the loop's own thread, the thread ends by itself after the running task. EventLoop is
// the state, which may outlive the thread; a task posted after the stop is dropped.
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
  virtual int fd() const = 0;
  // True if progress was made: call it again.
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

  // Runs `task` on the loop, in the order of the calls. False if the loop has stopped, and drops
  // the task.
  bool Post(Task task);
  bool InLoop() const { return std::this_thread::get_id() == thread_id_.load(); }

  // The clock of the loop's timers: Now(), or the time that a ManualLoop was set to.
  MonoTime now() const { return manual_now_ ? *manual_now_ : Now(); }

  // Runs `task` once, at `time` or later.
  TimerId AddTimer(MonoTime time, Task task);
  // Does nothing if the timer has already run.
  void CancelTimer(TimerId id) { timers_.erase(id); }

  // Calls `callback(epoll events)` whenever `fd` is ready (level-triggered).
  Status Watch(int fd, uint32_t events, std::function<void(uint32_t)> callback);
  void Unwatch(int fd);

  // Null removes the poller.
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

  std::mutex mutex_;  // guards the members below
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
  // Runs `task` on the loop and waits for it. Do not call it on the loop.
  void RunAndWait(EventLoop::Task task);

 private:
  explicit EventLoopThread(std::shared_ptr<EventLoop> loop);
  std::shared_ptr<EventLoop> loop_;
  std::thread thread_;
};

// A loop without a thread and with a clock that stands still: a simulation runs it, on the thread
// that made it. Only tasks and timers, no descriptors.
class ManualLoop {
 public:
  static StatusOr<std::unique_ptr<ManualLoop>> Create(MonoTime now);
  // Drops tasks and timers that have not run.
  ~ManualLoop();
  ManualLoop(const ManualLoop&) = delete;
  ManualLoop& operator=(const ManualLoop&) = delete;
  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  // Runs due tasks and timers, then sets the clock to the next timer if that is not after `limit`
  // (true), or to `limit` (false: nothing is left to do until then).
  bool Step(MonoTime limit);

 private:
  explicit ManualLoop(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  const std::shared_ptr<EventLoop> loop_;
};

}  // namespace longhaul
