// Adjusts the numbers of microbatches in flight and the order of data while a run trains. Gives the
// planner the measured steps, and brings the cells to the settings that the planner chooses
// (setting_change.h).
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

// Logs an event if the search for the plan was cut short.
void LogCutShort(Ledger& ledger, const Run& run, const Plan& plan);

class Tuning : public MoveListener {
 public:
  Tuning(Ledger& ledger, Computations& computations);

  // The coordinator restarted while the run was running.
  void Restart(Run& run);
  // Every stage has reported a step.
  void Consider(Run& run, std::span<const std::optional<v1::StepReport>> reports);
  void On(event::RetuneComputed& computed);
  void OnRetuned(Run& run, const StageRecord& stage, const v1::Retuned& retuned);
  // Sends the stage the requested settings that it has not confirmed.
  void SendRetune(const Worker& worker, const Run& run, const StageRecord& stage);

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }
  // For runs with stages.
  void CheckInvariants(const Run& run) const;

 private:
  struct OfRun {
    std::vector<Seen> steps;         // newest last
    std::optional<Seen> considered;  // input of the last consideration
    MonoTime not_before;             // time of the next consideration
    absl::Duration pause;
    std::optional<ComputationId> computation;  // search for a better plan
    SettingChange change;
  };

  void Begin(const Run& run);
  void OnFailed(const Run& run, const Status& why);
  void Adopt(Run& run, Plan better);
  void BeginChange(Run& run);
  void AdvanceChange(Run& run);

  Ledger& ledger_;
  Computations& computations_;
  PerRun<OfRun> of_;  // running
  uint64_t next_retune_;
};

}  // namespace longhaul::coordinator
