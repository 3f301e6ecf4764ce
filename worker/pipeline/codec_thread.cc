#include "worker/pipeline/codec_thread.h"

#include <utility>

#include "base/clock.h"

namespace longhaul::worker {

CodecThread::CodecThread() : thread_([this] { Loop(); }) {}

CodecThread::~CodecThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void CodecThread::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  ready_.notify_one();
}

absl::Duration CodecThread::TakeBusyTime() {
  const std::lock_guard lock(mutex_);
  return std::exchange(busy_, absl::ZeroDuration());
}

void CodecThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const MonoTime begin = Now();
    job();
    job = nullptr;
    const absl::Duration elapsed = longhaul::operator-(Now(), begin);
    lock.lock();
    busy_ += elapsed;
  }
}

}  // namespace longhaul::worker
