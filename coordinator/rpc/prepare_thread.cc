#include "coordinator/rpc/prepare_thread.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

#include "absl/time/clock.h"

namespace longhaul::coordinator {

PrepareThread::PrepareThread(DataPreparer preparer, std::function<void(event::DataPrepared)> done)
    : preparer_(std::move(preparer)), done_(std::move(done)), thread_([this] { Run(); }) {}

PrepareThread::~PrepareThread() {
  Stop(Deadline::After(absl::ZeroDuration()));
  thread_.join();
}

void PrepareThread::Add(command::PrepareData request) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(request));
  changed_.notify_all();
}

bool PrepareThread::Stop(Deadline deadline) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  waiting_.clear();
  changed_.notify_all();
  return changed_.wait_until(lock, deadline.time(), [this] { return ended_; });
}

void PrepareThread::Run() {
  while (true) {
    command::PrepareData request;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) {
        ended_ = true;
        changed_.notify_all();
        return;
      }
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const MonoTime start = Now();
    StatusOr<v1::DataSet> data = absl::UnknownError("not prepared");
    try {
      data = preparer_.Prepare(request);
    } catch (const std::exception& error) {
      data = FromException("preparing the data", error);
    }
    if (data.ok()) {
      spdlog::info("run {}: data prepared: {} tokens in {}", request.run.value(), data->tokens(),
                   absl::FormatDuration(Now() - start));
    }
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) continue;
    }
    done_({request.run, std::move(data)});
  }
}

}  // namespace longhaul::coordinator
