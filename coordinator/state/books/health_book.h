// Workers whose processes keep dying or hanging: how often each was lost by its own fault, and for
// how long runs leave it out. Pure data; not thread-safe. Empty after a restart of the coordinator.
//
//   if (auto verdict = book.Lost(id, incarnation, Fault::kDied, now)) ...  // it is left out now
//   if (book.LeftOutUntil(id, now)) ...                                    // choose another worker
//   book.DidWell(id);                                                      // a fresh start
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
  // Losses further apart than this count as unrelated.
  absl::Duration window = absl::Minutes(10);
  // From the second loss in a row on, a worker is left out for `first_pause`, then for twice as
  // long each time, up to `longest_pause`.
  absl::Duration first_pause = absl::Seconds(30);
  absl::Duration longest_pause = absl::Minutes(10);
};

class HealthBook {
 public:
  enum class Fault : uint8_t {
    kDied,  // also: hung, stopped, or its machine is gone
    // Its GPU failed. The worker is left out at once, because such errors recur.
    kDeviceLost,
  };
  struct Verdict {
    uint32_t losses = 0;    // consecutive losses
    absl::Duration within;  // since the first of these losses
    absl::Duration pause;
    MonoTime until;
  };

  explicit HealthBook(const HealthOptions& options) : options_(options) {}

  // Records that this process of the worker was lost while it had a part in a run. Further reports
  // of the same process do not count. nullopt: the worker may go on at once.
  std::optional<Verdict> Lost(const WorkerId& id, const Incarnation& incarnation, Fault fault,
                              MonoTime now);
  // The worker took part in a checkpoint that can no longer be lost: its count of losses restarts.
  // A current pause stays.
  void DidWell(const WorkerId& id);
  void Forget(const WorkerId& id) { workers_.erase(id); }

  // nullopt: the worker is not left out.
  std::optional<MonoTime> LeftOutUntil(const WorkerId& id, MonoTime now) const;
  // Consecutive losses within the window.
  uint32_t Losses(const WorkerId& id, MonoTime now) const;
  // When the next pause ends; MonoTime::max(): no worker is left out.
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
