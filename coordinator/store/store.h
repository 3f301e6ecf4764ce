// The coordinator's database: runs, events, steps and workers' logs, in SQLite (write-ahead log) at
// <state-dir>/store.db. Tables: schema.h.
//
// A store with another schema, of another program or with damage is refused and left unchanged.
// Thread-safe. A call that writes may wait long, for the disk and for the other coordinator
// (journal.h). Calls that read have a connection of their own: they never wait for one that writes,
// and see what is committed.
//
// Errors: kDataLoss (damage), kFailedPrecondition (other schema, no access),
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

// Log lines of workers that are kept for each run; the newest stay. Older ones are deleted many at
// a time, so up to 1,000 more may be stored.
inline constexpr uint64_t kKeptLogLines = 20'000;
// The same number for the events of each run, and for the events that belong to no run.
inline constexpr uint64_t kKeptEvents = 20'000;

class Store {
 public:
  // Opens the store of a state directory whose lock the caller holds (StateDirLock), or creates an
  // empty one.
  static StatusOr<std::unique_ptr<Store>> Open(const std::string& state_dir);
  ~Store();

  // Applies all writes in one transaction, or none. Every transaction survives the end of the
  // process. One with a run or an event also survives a power loss; one that has only steps and log
  // lines may not, unless the replicator needs it (replicator.h). `written`: gets the change that
  // the writes became; may be null.
  Status Apply(const std::vector<Write>& writes, Written* written = nullptr);
  // Begins a term (Journal::BeginTerm). The journal's replicator must be set.
  Status BeginTerm(const TermBegun& begun, Written* written = nullptr);
  // Puts every committed change on disk. Call it before another coordinator may succeed this one.
  Status Sync();

  // The journal of all transactions of the store and of Members.
  Journal& journal();

  // Deletes a run's step records except the newest `keep` (at least one), and returns their number;
  // with `dry_run` it only counts them.
  StatusOr<uint64_t> TrimSteps(const RunId& run, uint64_t keep, bool dry_run);

  // Returns runs in the order of submission, with the steps since the oldest checkpoint of each run
  // that has not ended. A run that cannot be read is named in StoredRuns::unreadable. If a step of
  // a run cannot be read, the run is returned without steps.
  StatusOr<StoredRuns> LoadRuns() const;
  StatusOr<uint64_t> NextEventSequence() const;

  // Returns at most `limit` events, in ascending order: the first ones whose sequence number is
  // above `after`. `run`: a run's id; empty: all events. An unknown run has no events.
  StatusOr<std::vector<v1::Event>> Events(std::string_view run, uint64_t after, size_t limit) const;
  // As Events, but returns the newest `limit` events above `after`; also in ascending order.
  StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view run, uint64_t after,
                                                size_t limit) const;
  // As Events, for the workers' log lines of one run.
  StatusOr<std::vector<v1::LogEntry>> Logs(const RunId& run, uint64_t after, size_t limit) const;
  // Returns at most `limit` step records from `step` on, in order. The validation before the first
  // step is the record of step 0.
  StatusOr<std::vector<v1::StepRecord>> Steps(const RunId& run, uint64_t step, size_t limit) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator
