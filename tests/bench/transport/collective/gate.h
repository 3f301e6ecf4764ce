// A barrier that lets all ranks go within a microsecond or so: they spin on a word in memory that
// threads or processes share. A lost rank ends the wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "transport/collective/member.h"

namespace longhaul::collective::bench {

// All zeros is a gate; it may lie in shared memory.
class Gate {
 public:
  Status Pass(const Member& member, Deadline deadline) {
    const uint32_t turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == member.place().size) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return absl::OkStatus();
    }
    constexpr uint32_t kSpins = 4096;
    for (uint32_t spins = 1; turn_.load(std::memory_order_acquire) == turn; ++spins) {
      if (spins % kSpins != 0) continue;
      LH_RETURN_IF_ERROR(member.status());
      if (deadline.Expired()) {
        return absl::DeadlineExceededError("not all ranks came to the next measurement in time");
      }
      std::this_thread::yield();  // there may be fewer cores than ranks
    }
    return absl::OkStatus();
  }

 private:
  std::atomic<uint32_t> arrived_{0}, turn_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace longhaul::collective::bench
