#include "worker/pipeline/checkpoint_writer.h"

#include <utility>

#include "base/log.h"

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

// Without the file the steps cannot be audited, but the checkpoint is whole.
void CheckpointWriter::WriteInputs(Job* job) {
  const Step step(job->snapshot->step);
  StatusOr<ShardFile> file = store_->WriteInputs(run_, owner_, step, job->inputs->bytes);
  job->inputs->bytes = {};
  if (file.ok()) {
    job->inputs_file = *std::move(file);
  } else {
    LogWarning("run {}: what was received before step {} cannot be kept for an audit: {}",
               run_.value(), step.value(), Message(file.status()));
  }
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
    const StatusOr<std::vector<ShardFile>> files = store_->Write(run_, owner_, *job.snapshot);
    if (files.ok() && job.inputs) WriteInputs(&job);
    done_(job, files);
    job.snapshot.reset();
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace longhaul::worker
