#include "coordinator/store/journal.h"

#include <utility>

namespace longhaul::coordinator {

Status Journal::Write(sqlite::Database& database, absl::FunctionRef<Status()> write) {
  std::shared_ptr<JournalFollower> follower;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    follower = follower_;
    v1::StoreChange change;
    if (follower != nullptr) database.WriteDownIn(&change);
    const Status status = database.Transact(write);
    database.WriteDownIn(nullptr);
    LH_RETURN_IF_ERROR(status);
    if (follower == nullptr || change.statements().empty()) return absl::OkStatus();
    number = ++number_;
    change.set_number(number);
    follower->Changed(std::move(change));
  }
  // After the lock: other writers may go on, and only this one waits for the standby.
  follower->Await(number);
  return absl::OkStatus();
}

Status Journal::Follow(const std::shared_ptr<JournalFollower>& follower,
                       absl::FunctionRef<Status(uint64_t number)> begin) {
  const std::lock_guard lock(mutex_);
  if (follower_ != nullptr) {
    return absl::FailedPreconditionError("this coordinator has a standby already");
  }
  LH_RETURN_IF_ERROR(begin(number_));
  follower_ = follower;
  return absl::OkStatus();
}

void Journal::Unfollow(const JournalFollower* follower) {
  const std::lock_guard lock(mutex_);
  if (follower_.get() == follower) follower_.reset();
}

}  // namespace longhaul::coordinator
