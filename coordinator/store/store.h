// What the coordinator remembers: runs, events, steps and workers' logs, in SQLite (write-ahead
// log) at <state-dir>/store.db. schema.h has its tables.
//
// A store of another schema, of another program or with damage is refused and left as it is.
// Thread-safe: one lock, held for one transaction or one page of a reader. Errors: kDataLoss
// (damage), kFailedPrecondition (other schema, no access), kResourceExhausted (disk full),
// kUnavailable (I/O error); the store then is as it was before the call.
#ifndef LONGHAUL_COORDINATOR_STORE_STORE_H_
#define LONGHAUL_COORDINATOR_STORE_STORE_H_

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

// The newest lines of workers' logs that are kept for each run.
inline constexpr uint64_t kKeptLogLines = 20'000;
// The newest events of each run, and of what belongs to none.
inline constexpr uint64_t kKeptEvents = 20'000;

class Store {
 public:
  // Opens the store of a state directory that the caller holds the lock of (StateDirLock); makes an
  // empty one where there is none.
  static StatusOr<std::unique_ptr<Store>> Open(const std::string& state_dir);
  ~Store();

  // One transaction: all of it or nothing. It survives a loss of power, except steps and log lines
  // that come without a run or event beside them: those survive the end of the process only.
  Status Apply(const std::vector<Write>& writes);

  // What all transactions of the store go through, also those of its members.
  Journal& journal();

  // Deletes a run's step records but for the newest `keep`, or, with `dry_run`, only counts them.
  StatusOr<uint64_t> TrimSteps(const RunId& run, uint64_t keep, bool dry_run);

  // In the order in which they were submitted. One that cannot be read keeps no other from it; of
  // one with a step that cannot be read no steps come.
  StatusOr<StoredRuns> LoadRuns() const;
  StatusOr<uint64_t> NextEventSequence() const;

  // Pages in ascending order, what comes after `after`; an empty page is the end.
  // `run` empty: of all runs.
  StatusOr<std::vector<v1::Event>> Events(std::string_view run, uint64_t after, size_t limit) const;
  // The newest `limit` of those, in ascending order, too.
  StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view run, uint64_t after,
                                                size_t limit) const;
  StatusOr<std::vector<v1::LogEntry>> Logs(const RunId& run, uint64_t after, size_t limit) const;
  // From `step` on: the validation before the first step has number 0.
  StatusOr<std::vector<v1::StepRecord>> Steps(const RunId& run, uint64_t step, size_t limit) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_STORE_H_
