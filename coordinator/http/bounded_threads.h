// The thread pool of the dashboard's server, with a bounded number of threads and of waiting
// connections.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace longhaul::coordinator {

// If all threads are busy and `waiting` connections wait, enqueue blocks. Further connections then
// stay in the kernel's queue and take none of the coordinator's descriptors.
class BoundedThreads : public httplib::TaskQueue {
 public:
  BoundedThreads(size_t threads, size_t waiting);
  void enqueue(std::function<void()> task) override;
  // Waits for running tasks. Waiting tasks run as well: they close their connections.
  void shutdown() override;

 private:
  void Work();

  const size_t most_waiting_;
  std::mutex mutex_;  // guards tasks_ and ending_
  std::condition_variable changed_;
  std::list<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::coordinator
