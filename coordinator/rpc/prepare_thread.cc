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
  const absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(request));
}

bool PrepareThread::Stop(Deadline deadline) {
  const absl::MutexLock lock(&mutex_);
  stopping_ = true;
  waiting_.clear();
  return mutex_.AwaitWithTimeout(absl::Condition(&ended_), deadline.Remaining());
}

void PrepareThread::Run() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !waiting_.empty();
  };
  while (true) {
    command::PrepareData request;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (stopping_) {
        ended_ = true;
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
      const absl::MutexLock lock(&mutex_);
      if (stopping_) continue;
    }
    done_({request.run, std::move(data)});
  }
}

}  // namespace longhaul::coordinator
