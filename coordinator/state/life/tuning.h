// Adjusts two settings of each stage while a run trains: the depth, which is the number of
// microbatches in flight, and the lead (setting_change.h). Gives the planner the times and rates of
// the last steps, and brings all stages to the settings that the planner chooses.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/computations.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/setting_change.h"
#include "planner/retune.h"

namespace longhaul::coordinator {

// Logs an event if the planner stopped its search for `plan` early, so that a better plan may
// exist.
void LogCutShort(Ledger& ledger, const Run& run, const Plan& plan);

class Tuning : public MoveListener {
 public:
  Tuning(Ledger& ledger, Computations& computations);

  // Begins to tune a run that was running when the coordinator restarted. If the plan's settings
  // were ever changed, requests the settings from all cells (stages of one replica) again, because
  // some cells may not have them yet.
  void Restart(Run& run);
  // Takes a step's reports, one of each stage, none missing. Starts a search for better settings
  // when enough steps were measured and their medians differ from the medians of the previous
  // search.
  void Consider(Run& run, std::span<const std::optional<v1::StepReport>> reports);
  void On(event::RetuneComputed& computed);
  // Takes a stage's report that it has applied requested settings.
  void OnRetuned(Run& run, const StageRecord& stage, const v1::Retuned& retuned);
  // Sends the stage the requested settings, unless the stage has confirmed them or no change is
  // under way.
  void SendRetune(const Worker& worker, const Run& run, const StageRecord& stage);

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }
  // The run must have stages.
  void CheckInvariants(const Run& run) const;

 private:
  struct OfRun {
    std::vector<Seen> steps;                   // measurements of the last steps, newest last
    std::optional<Seen> considered;            // input of the last search
    MonoTime not_before;                       // no search begins before
    absl::Duration pause;                      // between searches
    std::optional<ComputationId> computation;  // the search under way
    SettingChange change;
  };

  void Begin(const Run& run);
  void OnFailed(const Run& run, const Status& why);
  void Adopt(Run& run, Plan better);
  void BeginChange(Run& run);
  void AdvanceChange(Run& run);

  Ledger& ledger_;
  Computations& computations_;
  PerRun<OfRun> of_;  // of running runs
  uint64_t next_retune_;
};

}  // namespace longhaul::coordinator
