#include "worker/stage/group/rank_threads.h"

namespace longhaul::worker {

RankThreads::RankThreads(uint32_t ranks) : results_(ranks) {
  for (uint32_t rank = 0; rank < ranks; ++rank)
    threads_.emplace_back([this, rank] { Serve(rank); });
}

RankThreads::~RankThreads() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  changed_.notify_all();
}

std::vector<Status> RankThreads::Run(const Work& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  busy_ = static_cast<uint32_t>(threads_.size());
  ++calls_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return busy_ == 0; });
  work_ = nullptr;
  return results_;
}

void RankThreads::Serve(uint32_t rank) {
  uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || calls_ > served; });
    if (closing_) return;
    served = calls_;
    const Work& work = *work_;
    lock.unlock();
    Status status = work(rank);
    lock.lock();
    results_[rank] = std::move(status);
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace longhaul::worker
