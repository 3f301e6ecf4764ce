// Collects the steps and validations that the stages of a run report. A step is finished when every
// stage has reported it. A step that is trained again after an interruption must give the same
// numbers as before, if devices and software are the same (books/step_book.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/state/books/step_book.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/tuning.h"

namespace longhaul::coordinator {

class Steps : public MoveListener {
 public:
  Steps(Ledger& ledger, Failures& failures, Tuning& tuning)
      : ledger_(ledger), failures_(failures), tuning_(tuning) {}

  // Loads the newest stored steps of a run that has not ended.
  void Load(const Run& run, std::span<const v1::StepRecord> rows) { of_[run].book.Load(rows); }

  // Takes a stage's report of a step. False: the report does not fit the present state of the run,
  // and is ignored.
  bool OnStep(Run& run, StageRecord& stage, const Worker& worker, const v1::WorkerMessage& message);
  void OnValidation(Run& run, const v1::ValidationReport& report);
  // Forgets the numbers of the steps after `step`: when these steps are trained again, other
  // numbers are right.
  void Distrust(const Run& run, uint64_t step) { of_[run].book.ForgetAfter(step); }

  // Sets the function that is called with the reports of each step that all stages have finished,
  // by index of the stage, before the step is in the run's record.
  using Finished = std::function<void(const Run& run, uint64_t step,
                                      std::span<const std::optional<v1::StepReport>> reports)>;
  void WhenFinished(Finished finished) { finished_ = std::move(finished); }

  // The last finished steps of the newest epoch (attempt), oldest first, at most 32. They stay when
  // the run has ended.
  const std::deque<v1::StepRecord>& Recent(const Run& run) const { return of_.Of(run).recent; }
  // The newest validation of the newest epoch; nullopt: none.
  const std::optional<v1::ValidationReport>& Validation(const Run& run) const {
    return of_.Of(run).validation;
  }
  // The stage's newest report; null: there is none. Valid until the next event is handled.
  const v1::StepReport* LastOf(const Run& run, const StageRecord& stage) const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // Reports of one step, by index of the stage, until all have arrived.
  using Reports = std::vector<std::optional<v1::StepReport>>;
  struct OfRun {
    StepBook book;  // kept until the run has ended
    std::map<uint64_t, Reports> partial;
    uint64_t partial_bytes = 0;  // of the reports in `partial`
    Reports TakePartial(std::map<uint64_t, Reports>::iterator step);
    std::deque<v1::StepRecord> recent;
    std::map<uint64_t, v1::ValidationReport> validation_early;  // of unfinished steps
    std::optional<v1::ValidationReport> validation;
    Reports last;  // each stage's newest report
  };

  void Finish(Run& run, uint64_t step, const Reports& reports);
  void LogIfSkipped(const Run& run, uint64_t step, const Reports& reports);
  // Adds a step that all stages have finished to the book. If the step was trained before, logs the
  // comparison. False: the step had to give the same numbers and did not, so the run has failed.
  bool File(Run& run, v1::StepRecord* row, const Reports& reports);
  std::string BrokenPromise(const Run& run, const v1::StepRecord& row,
                            const RepeatedStep& repeated) const;

  Ledger& ledger_;
  Failures& failures_;
  Tuning& tuning_;
  PerRun<OfRun> of_;
  Finished finished_;  // may be empty
};

}  // namespace longhaul::coordinator
