// What one thread of a test tells another: taken in order, waited for with a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace longhaul::testing {

// Thread-safe.
template <class T>
class Mailbox {
 public:
  void Push(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    // Not later: who takes it may end this mailbox.
    changed_.notify_all();
  }
  // The oldest; nothing if none comes for a long time (far more than anything here takes).
  std::optional<T> Take() {
    constexpr std::chrono::seconds kPatience{30};
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return !items_.empty(); })) return {};
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return items_.empty();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
};

}  // namespace longhaul::testing
