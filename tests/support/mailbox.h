// A queue through which one thread of a test passes items to another, in order.
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
    // Notify under the lock: after the unlock, the taker may destroy this mailbox.
    changed_.notify_all();
  }
  // Removes and returns the oldest item. Waits up to 30 s for an item; nullopt: none came.
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
