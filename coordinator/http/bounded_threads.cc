#include "coordinator/http/bounded_threads.h"

#include <utility>

namespace longhaul::coordinator {

BoundedThreads::BoundedThreads(size_t threads, size_t waiting) : most_waiting_(waiting) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

void BoundedThreads::enqueue(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ending_ || tasks_.size() < most_waiting_; });
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void BoundedThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BoundedThreads::Work() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    changed_.notify_all();
    task();
  }
}

}  // namespace longhaul::coordinator
