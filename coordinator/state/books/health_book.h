// Counts how often the process of each worker was lost by the worker's own fault, and says for how
// long runs leave such a worker out. Losses are consecutive if the worker had no part in a
// checkpoint that was committed between the losses. Pure data; not thread-safe. Empty after a
// restart of the coordinator.
//
//   if (auto verdict = book.Lost(id, incarnation, Fault::kDied, now)) ...  // now left out
//   if (book.LeftOutUntil(id, now)) ...                                    // choose another worker
//   book.DidWell(id);                                                      // count from 0 again
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"

namespace longhaul::coordinator {

struct HealthOptions {
  // Losses older than this do not count.
  absl::Duration window = absl::Minutes(10);
  // The second consecutive loss leaves the worker out for `first_pause`. Each further loss doubles
  // the pause, up to `longest_pause`.
  absl::Duration first_pause = absl::Seconds(30);
  absl::Duration longest_pause = absl::Minutes(10);
};

class HealthBook {
 public:
  enum class Fault : uint8_t {
    kDied,  // the process died, hung or was stopped, or its machine is gone
    // The GPU failed. The first loss already leaves the worker out, because such errors recur.
    kDeviceLost,
  };
  struct Verdict {
    uint32_t losses = 0;    // consecutive losses
    absl::Duration within;  // time since the first of these losses
    absl::Duration pause;   // how long the worker is left out
    MonoTime until;
  };

  explicit HealthBook(const HealthOptions& options) : options_(options) {}

  // Records that this process of the worker was lost by the worker's own fault. Returns a verdict
  // if the worker is left out because of this loss. nullopt: the loss causes no pause, or the loss
  // of this process was already recorded.
  std::optional<Verdict> Lost(const WorkerId& id, const Incarnation& incarnation, Fault fault,
                              MonoTime now);
  // Call this when a checkpoint is committed in which the worker had a part. The count of the
  // worker's losses restarts at 0; a current pause stays.
  void DidWell(const WorkerId& id);
  // Leaves the worker out for as long as this book lives: it has erred or lied.
  void Distrust(const WorkerId& id) { workers_[id].left_out_until = MonoTime::max(); }
  bool IsDistrusted(const WorkerId& id) const;
  // Does nothing about a worker that is distrusted.
  void Forget(const WorkerId& id) {
    if (!IsDistrusted(id)) workers_.erase(id);
  }

  // Returns when the worker's pause ends; nullopt: the worker is not left out.
  std::optional<MonoTime> LeftOutUntil(const WorkerId& id, MonoTime now) const;
  // Returns the number of consecutive losses within the window.
  uint32_t Losses(const WorkerId& id, MonoTime now) const;
  // Returns when the next pause ends; MonoTime::max(): no worker is left out.
  MonoTime NextWake(MonoTime now) const;

 private:
  struct Record {
    std::deque<MonoTime> losses;
    Incarnation last;
    MonoTime left_out_until;
  };
  bool IsRecent(MonoTime loss, MonoTime now) const { return loss + options_.window > now; }

  const HealthOptions options_;
  std::map<WorkerId, Record> workers_;
};

}  // namespace longhaul::coordinator
