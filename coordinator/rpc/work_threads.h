// Threads for work that waits for disks: tokenizing, hashing, fsync. What one user asks for does
// not wait for what another user's takes, as long as a thread is free.
//
// Thread-safe.
#ifndef LONGHAUL_COORDINATOR_RPC_WORK_THREADS_H_
#define LONGHAUL_COORDINATOR_RPC_WORK_THREADS_H_

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

namespace longhaul::coordinator {

class WorkThreads {
 public:
  using Work = std::function<void()>;

  explicit WorkThreads(size_t threads);
  // Waits for the work under way.
  ~WorkThreads();
  WorkThreads(const WorkThreads&) = delete;
  WorkThreads& operator=(const WorkThreads&) = delete;

  // Runs `work` once, on one of the threads. Work of one `key` runs one after the other, in order.
  // Where Stop comes before its turn, `dropped` runs instead, on the thread that stops or adds.
  void Add(std::string key, Work work, Work dropped = {});
  // Drops what waits. False: some work was still under way at the deadline.
  bool Stop(Deadline deadline);

 private:
  struct Item {
    std::string key;
    Work work, dropped;
  };
  void Run();
  std::list<Item>::iterator NextWithLockHeld();

  std::mutex mutex_;  // of the next three
  std::condition_variable changed_;
  std::list<Item> waiting_;
  std::set<std::string> running_;  // keys
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_WORK_THREADS_H_
