// The coordinator's memory: runs, events, steps and workers' logs, in SQLite (write-ahead log) at
// <state-dir>/store.db. Tables: schema.h.
//
// A store with another schema, of another program or with damage is refused and left unchanged.
// Thread-safe: one lock, held for a transaction or for one page of a reader. Errors: kDataLoss
// (damage), kFailedPrecondition (other schema, no access), kResourceExhausted (disk full),
// kUnavailable (I/O error). After an error the store is as before the call.
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

// Log lines of workers kept for each run; the newest stay.
inline constexpr uint64_t kKeptLogLines = 20'000;
// Maximum number of events kept for each run, and of events that belong to no run; the newest stay.
inline constexpr uint64_t kKeptEvents = 20'000;

class Store {
 public:
  // Opens the store of a state directory whose lock the caller holds (StateDirLock), or creates an
  // empty one.
  static StatusOr<std::unique_ptr<Store>> Open(const std::string& state_dir);
  ~Store();

  // Applies all writes in one transaction, or none. The transaction survives a power loss. Steps
  // and log lines without a run or event in the same transaction survive only the end of the
  // process.
  Status Apply(const std::vector<Write>& writes);

  // The journal of all transactions of the store and of Members.
  Journal& journal();

  // Deletes a run's step records except the newest `keep`; with `dry_run` it only counts them.
  StatusOr<uint64_t> TrimSteps(const RunId& run, uint64_t keep, bool dry_run);

  // Runs in the order of submission. A run that cannot be read does not hide others. A run with an
  // unreadable step has no steps.
  StatusOr<StoredRuns> LoadRuns() const;
  StatusOr<uint64_t> NextEventSequence() const;

  // Pages of events after `after`, ascending; an empty page is the end. `run` empty: of all runs.
  StatusOr<std::vector<v1::Event>> Events(std::string_view run, uint64_t after, size_t limit) const;
  // The newest `limit` of these events, ascending as well.
  StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view run, uint64_t after,
                                                size_t limit) const;
  StatusOr<std::vector<v1::LogEntry>> Logs(const RunId& run, uint64_t after, size_t limit) const;
  // Steps from `step` on. The validation before the first step has number 0.
  StatusOr<std::vector<v1::StepRecord>> Steps(const RunId& run, uint64_t step, size_t limit) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator
