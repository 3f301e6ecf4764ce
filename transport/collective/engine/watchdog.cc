#include "transport/collective/engine/watchdog.h"

#include <utility>

#include "base/clock.h"

namespace longhaul::collective {
namespace {

constexpr std::chrono::milliseconds kLook(50);

int64_t Nanoseconds(MonoTime time) {
  return time.nanoseconds();
}

}  // namespace

Watchdog::Watchdog(std::function<void()> expired)
    : expired_(std::move(expired)), thread_([this] { Watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Watchdog::Arm(absl::Duration limit) {
  deadline_ = Nanoseconds(Now() + limit);
}

bool Watchdog::Disarm() {
  return deadline_.exchange(kNever) == kExpired;
}

void Watchdog::Watch() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, kLook);
    int64_t deadline = deadline_;
    if (closing_ || deadline == kExpired || deadline > Nanoseconds(Now())) continue;
    // Not where the call has ended, or another one has begun, meanwhile.
    if (!deadline_.compare_exchange_strong(deadline, kExpired)) continue;
    lock.unlock();
    expired_();
    lock.lock();
  }
}

}  // namespace longhaul::collective
