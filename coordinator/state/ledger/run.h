// The state of a run that several components of the state machine share. State that only one
// component needs is in that component's header. Plain data; private to coordinator/state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/ledger/stage_record.h"
#include "coordinator/state/run_record.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

struct Run {
  RunRecord record;
  uint64_t order = 0;        // place in the order of submission
  uint64_t queue_order = 0;  // place in the queue; a resumed run goes to the end
  bool dirty = false;        // the record must be written at the end of the tick
  MonoTime stored_at;        // when the record was last marked to be written
  uint64_t sequence = 0;     // the ledger's sequence() after the run's last change
  std::string waiting;       // queued, recovering: a sentence about what the run waits for
  // Step of the checkpoint that is on its way to checkpoint.to, and is kept meanwhile; 0: none.
  uint64_t storing = 0;
  // Steps of checkpoints between which audits compute. They are kept meanwhile.
  std::set<uint64_t> audited;
  // While queued or planning: the run may resume only from the checkpoint that the user named.
  bool resume_exactly = false;
  // The highest epoch that a worker has named of this run. The next epoch of the run is above it,
  // even if the records are from an old copy (epochs.h).
  Epoch epoch_seen;
  std::vector<StageRecord> stages;        // of the newest plan; kept after the run's end
  std::vector<std::string> workers_lost;  // names of workers that the newest epoch lost
  uint64_t dropped = 0;                   // messages dropped by Ledger::DropMessage
  // Implausible tensors that came again when their step was repeated: stages let them pass.
  std::vector<v1::AcceptedOutlier> accepted_outliers;

  // The run must have a plan. Every run with stages has a plan.
  const Assignment& assignment() const { return record.plan->assignment; }
  StageRecord* Find(const CellId& id) {
    const auto found = std::ranges::find(stages, id, &StageRecord::id);
    return found == stages.end() ? nullptr : &*found;
  }
  const StageRecord* Find(const CellId& id) const { return const_cast<Run*>(this)->Find(id); }
};

// Returns how many microbatches all replicas together have read up to the end of `step`. Training
// continues with the next microbatch, even with another number of replicas. `step` is a
// checkpoint's step in the first function, and a step of the run's present epoch in the second one.
uint64_t MicrobatchesAt(const RunRecord& record, uint64_t step);
uint64_t MicrobatchesAt(const Run& run, uint64_t step);

// Returns whether a run in this state reserves workers: planning, preparing, running, finishing,
// recovering.
bool IsActive(RunState state);
// Returns whether workers have stages of a run in this state: preparing, running, finishing.
bool HasStages(RunState state);

// The state that one component keeps for each run.
template <class T>
class PerRun {
 public:
  // Makes an entry if there is none.
  T& operator[](const Run& run) { return of_[run.record.id]; }
  // Returns a default T for a run without an entry.
  const T& Of(const Run& run) const {
    static const T kNone{};
    const auto found = of_.find(run.record.id);
    return found == of_.end() ? kNone : found->second;
  }
  void Forget(const RunId& id) { of_.erase(id); }
  auto begin() const { return of_.begin(); }
  auto end() const { return of_.end(); }

 private:
  std::map<RunId, T> of_;
};

}  // namespace longhaul::coordinator
