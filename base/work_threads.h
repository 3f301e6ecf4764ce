// Threads for work that waits for disks: tokenizing, hashing, fsync. Work has a key, such as the
// user's name. Work with different keys runs at the same time while a thread is free.
//
// Thread-safe. Do not destroy or stop a WorkThreads from its own work.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace longhaul {

class WorkThreads {
 public:
  using Work = std::function<void()>;

  explicit WorkThreads(size_t threads);
  // Calls Stop, and waits for running work without a limit.
  ~WorkThreads();
  WorkThreads(const WorkThreads&) = delete;
  WorkThreads& operator=(const WorkThreads&) = delete;

  // Runs `work` once on one of the threads. Work with the same `key` runs in the order of the
  // calls, one at a time. If Stop is called before `work` begins, `dropped` runs instead, on the
  // thread that calls Stop. If Add is called after Stop, `dropped` runs at once, on the thread that
  // calls Add. Empty `dropped`: nothing runs. Neither function may throw.
  void Add(std::string key, Work work, Work dropped = {});
  // Drops waiting and later work: runs `dropped` instead. Then waits for running work until
  // `deadline`. False: some work was still running at the deadline.
  bool Stop(Deadline deadline);

 private:
  struct Item {
    std::string key;
    Work work, dropped;
  };
  void Run();
  std::list<Item>::iterator NextWithLockHeld();

  std::mutex mutex_;  // guards the four members below
  std::condition_variable changed_;
  std::list<Item> waiting_;
  std::set<std::string> running_;  // keys of running work
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul
