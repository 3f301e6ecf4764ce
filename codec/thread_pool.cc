#include "codec/thread_pool.h"

namespace longhaul::codec {

ThreadPool::ThreadPool(size_t threads) {
  for (size_t k = 1; k < threads; ++k) {
    helpers_.emplace_back([this] { Help(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::For(size_t count, absl::FunctionRef<void(size_t)> body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    count_ = count;
    next_ = 0;
    busy_ = helpers_.size();
    ++round_;
  }
  changed_.notify_all();
  Work(count, body);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::Help() {
  uint64_t done = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || round_ != done; });
    if (stopping_) return;
    done = round_;
    const Body* const body = body_;
    const size_t count = count_;
    lock.unlock();
    Work(count, *body);
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}

void ThreadPool::Work(size_t count, const Body& body) {
  for (size_t k = next_++; k < count; k = next_++) body(k);
}

}  // namespace longhaul::codec
