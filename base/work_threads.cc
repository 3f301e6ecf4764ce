#include "base/work_threads.h"

#include <algorithm>
#include <utility>

namespace longhaul {

WorkThreads::WorkThreads(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkThreads::~WorkThreads() {
  Stop(Deadline::After(absl::ZeroDuration()));
  for (std::thread& thread : threads_) thread.join();
}

void WorkThreads::Add(std::string key, Work work, Work dropped) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      waiting_.push_back({std::move(key), std::move(work), std::move(dropped)});
      changed_.notify_all();
      return;
    }
  }
  if (dropped) dropped();
}

bool WorkThreads::Stop(Deadline deadline) {
  std::list<Item> waiting;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting.swap(waiting_);
    changed_.notify_all();
  }
  // Without the lock: what is told may add work, which is dropped as well.
  for (const Item& item : waiting) {
    if (item.dropped) item.dropped();
  }
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.time().ToChrono(), [this] { return running_.empty(); });
}

std::list<WorkThreads::Item>::iterator WorkThreads::NextWithLockHeld() {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [this](const Item& item) { return !running_.contains(item.key); });
}

void WorkThreads::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || NextWithLockHeld() != waiting_.end(); });
    if (stopping_) return;
    const auto next = NextWithLockHeld();
    const Item item = std::move(*next);
    waiting_.erase(next);
    running_.insert(item.key);
    lock.unlock();
    item.work();
    lock.lock();
    running_.erase(item.key);
    changed_.notify_all();
  }
}

}  // namespace longhaul
