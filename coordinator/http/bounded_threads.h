// The threads of the dashboard's server: so many and no more, and so few connections that wait.
#ifndef LONGHAUL_COORDINATOR_HTTP_BOUNDED_THREADS_H_
#define LONGHAUL_COORDINATOR_HTTP_BOUNDED_THREADS_H_

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace longhaul::coordinator {

// Where all threads are busy and `waiting` connections wait, the caller of enqueue waits: the next
// ones then stay in the kernel's queue, and take none of the coordinator's descriptors.
class BoundedThreads : public httplib::TaskQueue {
 public:
  BoundedThreads(size_t threads, size_t waiting);
  void enqueue(std::function<void()> task) override;
  // Waits for tasks that run. Those that wait run, too: they close their connections.
  void shutdown() override;

 private:
  void Work();

  const size_t most_waiting_;
  std::mutex mutex_;  // of tasks_ and ending_
  std::condition_variable changed_;
  std::list<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_BOUNDED_THREADS_H_
