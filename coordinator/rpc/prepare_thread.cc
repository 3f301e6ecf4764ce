#include "coordinator/rpc/prepare_thread.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

#include "absl/time/clock.h"

namespace longhaul::coordinator {

PrepareThread::PrepareThread(DataPreparer preparer, const BlobStore* copies,
                             std::function<void(Event)> done)
    : preparer_(std::move(preparer)),
      copies_(copies),
      done_(std::move(done)),
      thread_([this] { Run(); }) {}

PrepareThread::~PrepareThread() {
  Stop(Deadline::After(absl::ZeroDuration()));
  thread_.join();
}

void PrepareThread::Add(command::PrepareData request) {
  AddChore([this, request = std::move(request)]() -> Event { return Prepare(request); });
}

void PrepareThread::Add(command::CheckCopies request) {
  AddChore([this, request = std::move(request)]() -> Event { return Check(request); });
}

void PrepareThread::AddChore(Chore chore) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(chore));
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
    Chore chore;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) {
        ended_ = true;
        changed_.notify_all();
        return;
      }
      chore = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Event event = chore();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) continue;
    }
    done_(std::move(event));
  }
}

event::DataPrepared PrepareThread::Prepare(const command::PrepareData& request) const {
  const MonoTime start = Now();
  StatusOr<DataSet> data = absl::UnknownError("not prepared");
  try {
    data = preparer_.Prepare(request);
  } catch (const std::exception& error) {
    data = FromException("preparing the data", error);
  }
  if (data.ok()) {
    spdlog::info("run {}: data prepared: {} tokens in {}", request.run.value(), data->tokens,
                 absl::FormatDuration(Now() - start));
  }
  return {request.run, std::move(data)};
}

event::CopiesChecked PrepareThread::Check(const command::CheckCopies& request) const {
  event::CopiesChecked checked;
  checked.check = request.check;
  for (const v1::CheckpointFile& file : request.files) {
    checked.problems.emplace_back(Message(copies_->Check(file.sha256())));
  }
  return checked;
}

}  // namespace longhaul::coordinator
