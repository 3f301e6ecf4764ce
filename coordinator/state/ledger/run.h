// The state of a run that several components of the state machine share. State that only one
// component needs is in that component's header. Plain data; private to coordinator/state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/ledger/stage_record.h"
#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

struct Run {
  RunRecord record;
  uint64_t order = 0;        // number of its submission
  uint64_t queue_order = 0;  // number in the queue; a resumed run goes to the end
  bool dirty = false;        // to be written at the end of the tick
  MonoTime stored_at;        // when it was last marked to be written
  uint64_t sequence = 0;     // the ledger's sequence at its last change
  std::string waiting;       // queued, recovering: a sentence that names what the run waits for
  // Queued, planning: the run resumes only from the checkpoint that the user named.
  bool resume_exactly = false;
  std::vector<StageRecord> stages;  // of the newest plan; kept after the run's end
  std::vector<std::string> workers_lost;
  uint64_t dropped = 0;  // messages of other epochs, workers or states of this run

  // Only for a run with stages, because such a run has a plan.
  const Assignment& assignment() const { return record.plan->assignment; }
  StageRecord* Find(const CellId& id) {
    const auto found = std::ranges::find(stages, id, &StageRecord::id);
    return found == stages.end() ? nullptr : &*found;
  }
  const StageRecord* Find(const CellId& id) const { return const_cast<Run*>(this)->Find(id); }
};

// Returns how many microbatches all replicas together have read up to `step`: for a record the step
// of a checkpoint, for a run a step of its present epoch. Later steps continue from there, with any
// number of replicas.
uint64_t MicrobatchesAt(const RunRecord& record, uint64_t step);
uint64_t MicrobatchesAt(const Run& run, uint64_t step);

// The run holds workers: planning, preparing, running, finishing, recovering.
bool IsActive(RunState state);
// Workers have stages of the run's epoch: preparing, running, finishing.
bool HasStages(RunState state);

// The state that one component keeps for each run.
template <class T>
class PerRun {
 public:
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
