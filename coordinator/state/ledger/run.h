// What all components of the state machine know of a run. What one component knows alone stands in
// its own header. Plain data; private to coordinator/state.
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
  uint64_t order = 0;        // of submission
  uint64_t queue_order = 0;  // of becoming queued; a resumed run goes to the end
  bool dirty = false;        // to be written at the end of the tick
  MonoTime stored_at;        // when it was last to be written
  uint64_t sequence = 0;     // of its last change
  std::string waiting;       // queued, recovering: for what, a sentence
  // Queued, planning: it goes on from the checkpoint that the user named and from no other.
  bool resume_exactly = false;
  std::vector<StageRecord> stages;  // of the newest plan; kept when it has ended
  std::vector<std::string> workers_lost;
  uint64_t dropped = 0;  // messages of other epochs, workers or states of this run

  // Only where the run has stages, and so a plan.
  const Assignment& assignment() const { return record.plan->assignment; }
  StageRecord* Find(const CellId& id) {
    const auto found = std::ranges::find(stages, id, &StageRecord::id);
    return found == stages.end() ? nullptr : &*found;
  }
  const StageRecord* Find(const CellId& id) const { return const_cast<Run*>(this)->Find(id); }
};

// How many microbatches the run has read, over all replicas, up to the checkpoint of `step`; and up
// to a step of its present epoch. The steps that follow read those that follow, whatever the number
// of replicas is then.
uint64_t MicrobatchesAt(const RunRecord& record, uint64_t step);
uint64_t MicrobatchesAt(const Run& run, uint64_t step);

// It holds workers: planning, preparing, running, finishing, recovering.
bool IsActive(RunState state);
// Workers have stages of its epoch: preparing, running, finishing.
bool HasStages(RunState state);

// What one component knows of each run.
template <class T>
class PerRun {
 public:
  T& operator[](const Run& run) { return of_[run.record.id]; }
  // What is known of a run of which nothing was noted is a T without arguments.
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
