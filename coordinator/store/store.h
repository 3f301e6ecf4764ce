// The coordinator's memory: runs, events, steps and workers' logs, in SQLite (write-ahead log) at
// <state-dir>/store.db. Tables: schema.h.
//
// A store with another schema, of another program or with damage is refused and left unchanged.
// Thread-safe, by one lock. A reader holds it for a page, a writer until a standby has confirmed
// the change. Errors: kDataLoss (damage), kFailedPrecondition (other schema, no access),
// kResourceExhausted (disk full), kUnavailable (I/O error). After an error the store is as before
// the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/state.h"
#include "coordinator/store/journal.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Log lines of workers kept for each run; the newest stay. Older ones are deleted some at a time,
// so there may be 1,000 more.
inline constexpr uint64_t kKeptLogLines = 20'000;
// Likewise events kept for each run, and events that belong to no run.
inline constexpr uint64_t kKeptEvents = 20'000;

class Store {
 public:
  // Opens the store of a state directory whose lock the caller holds (StateDirLock), or creates an
  // empty one.
  static StatusOr<std::unique_ptr<Store>> Open(const std::string& state_dir);
  ~Store();

  // Applies all writes in one transaction, or none. A transaction with a run or an event survives a
  // power loss. One with nothing but steps and log lines may survive only the end of the process.
  Status Apply(const std::vector<Write>& writes);

  // The journal of all transactions of the store and of Members.
  Journal& journal();

  // Deletes a run's step records except the newest `keep` (at least one), and returns their number;
  // with `dry_run` it only counts them.
  StatusOr<uint64_t> TrimSteps(const RunId& run, uint64_t keep, bool dry_run);

  // Returns runs in the order of submission, with the steps since the oldest checkpoint of each run
  // that has not ended. A run that cannot be read is named apart and does not hide others. A run
  // with an unreadable step has no steps.
  StatusOr<StoredRuns> LoadRuns() const;
  StatusOr<uint64_t> NextEventSequence() const;

  // Returns the next `limit` events whose sequence number is above `after`, ascending; none at the
  // end. `run` empty: events of all runs.
  StatusOr<std::vector<v1::Event>> Events(std::string_view run, uint64_t after, size_t limit) const;
  // Returns the newest `limit` of the events above `after`, ascending as well.
  StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view run, uint64_t after,
                                                size_t limit) const;
  StatusOr<std::vector<v1::LogEntry>> Logs(const RunId& run, uint64_t after, size_t limit) const;
  // Returns the next `limit` step records from `step` on. The validation before the first step has
  // number 0.
  StatusOr<std::vector<v1::StepRecord>> Steps(const RunId& run, uint64_t step, size_t limit) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator
