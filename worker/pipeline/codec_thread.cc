#include "worker/pipeline/codec_thread.h"

#include <utility>

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

absl::Duration CodecThread::BusyTime() const {
  const std::lock_guard lock(mutex_);
  return busy_ + (job_began_ ? Now() - *job_began_ : absl::ZeroDuration());
}

std::optional<uint64_t> CodecThread::JobAtHand() const {
  const std::lock_guard lock(mutex_);
  return job_began_ ? std::optional(begun_) : std::nullopt;
}

uint64_t CodecThread::progress() const {
  const std::lock_guard lock(mutex_);
  return 2 * begun_ - (job_began_ ? 1 : 0);
}

void CodecThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    job_began_ = Now();
    ++begun_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    busy_ += Now() - *job_began_;
    job_began_.reset();
  }
}

}  // namespace longhaul::worker
