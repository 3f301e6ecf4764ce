#include "worker/pipeline/checkpoint_writer.h"

#include <utility>

namespace longhaul::worker {

CheckpointWriter::CheckpointWriter(ShardStore* store, RunId run, ShardOwner owner, Done done)
    : store_(store), run_(std::move(run)), owner_(owner), done_(std::move(done)), thread_([this] {
        Loop();
      }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::AwaitRoom() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_; });
}

void CheckpointWriter::Submit(Job job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_; });
  waiting_ = std::move(job);
  changed_.notify_all();
}

void CheckpointWriter::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_ && !writing_; });
}

void CheckpointWriter::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return waiting_ || closing_; });
    if (!waiting_) return;
    Job job = *std::exchange(waiting_, std::nullopt);
    writing_ = true;
    changed_.notify_all();
    lock.unlock();
    done_(job, store_->Write(run_, owner_, *job.snapshot));
    job.snapshot.reset();
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace longhaul::worker
