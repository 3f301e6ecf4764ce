#include "coordinator/rpc/chores.h"

#include <fmt/core.h>

#include <exception>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"

namespace longhaul::coordinator {

Chores::Chores(DataPreparer preparer, const BlobStore* copies, WorkThreads* threads,
               std::function<void(Event)> done)
    : preparer_(std::move(preparer)), copies_(copies), threads_(threads), done_(std::move(done)) {}

void Chores::Add(command::PrepareData request) {
  // Runs over the same text wait for each other: the second one finds what the first one made.
  const std::string key = "data " + preparer_.KeyOf(request);
  threads_->Add(key, [this, request = std::move(request)] { done_(Prepare(request)); });
}

void Chores::Add(command::CheckCopies request) {
  const std::string key = fmt::format("copies {}", request.check);
  threads_->Add(key, [this, request = std::move(request)] { done_(Check(request)); });
}

event::DataPrepared Chores::Prepare(const command::PrepareData& request) const {
  const MonoTime start = Now();
  StatusOr<DataSet> data = absl::UnknownError("not prepared");
  try {
    data = preparer_.Prepare(request);
  } catch (const std::exception& error) {
    data = FromException("preparing the data", error);
  }
  if (data.ok()) {
    LogInfo("run {}: data prepared: {} tokens in {}", request.run.value(), data->tokens,
            absl::FormatDuration(Now() - start));
  }
  return {request.run, std::move(data)};
}

event::CopiesChecked Chores::Check(const command::CheckCopies& request) const {
  event::CopiesChecked checked;
  checked.check = request.check;
  for (const v1::CheckpointFile& file : request.files) {
    const Status status = copies_->Check(file.sha256());
    checked.problems.emplace_back(Message(status));
    checked.unreadable.push_back(!status.ok() && !absl::IsNotFound(status) &&
                                 !absl::IsDataLoss(status));
  }
  return checked;
}

}  // namespace longhaul::coordinator
