#include "worker/agent/leave.h"

#include <algorithm>
#include <utility>

namespace longhaul::worker {

void Leave::Begin(absl::Duration limit, std::string why) {
  const std::lock_guard lock(mutex_);
  if (until_) return;
  until_ = Now() + limit;
  why_ = std::move(why);
}

bool Leave::HasBegun() const {
  const std::lock_guard lock(mutex_);
  return until_.has_value();
}

void Leave::Allow() {
  const std::lock_guard lock(mutex_);
  allowed_ = until_.has_value();
}

bool Leave::IsAllowed() const {
  const std::lock_guard lock(mutex_);
  return allowed_;
}

bool Leave::IsOver() const {
  const std::lock_guard lock(mutex_);
  return until_ && (allowed_ || Now() >= *until_);
}

v1::Leaving Leave::LeavingLocked() const {
  v1::Leaving leaving;
  leaving.set_seconds(std::max(0.0, absl::ToDoubleSeconds(*until_ - Now())));
  leaving.set_why(why_);
  return leaving;
}

v1::WorkerMessage Leave::Word() const {
  const std::lock_guard lock(mutex_);
  v1::WorkerMessage message;
  *message.mutable_leaving() = LeavingLocked();
  return message;
}

void Leave::FillHello(v1::Hello* hello) const {
  const std::lock_guard lock(mutex_);
  if (until_) *hello->mutable_leaving() = LeavingLocked();
}

}  // namespace longhaul::worker
