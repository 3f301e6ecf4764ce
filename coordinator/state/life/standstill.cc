#include "coordinator/state/life/standstill.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

namespace {

constexpr int kMedianSteps = 20;
// A first step also records passes, fills caches and has no time to compare with.
constexpr int kFirstStepPatience = 10;

// Whether the worker's newest heartbeat is about a stage of the run's present assignment.
bool IsAt(const Worker& worker, const Run& run) {
  return run.record.plan && worker.at_hand.run_id() == run.record.id.value() &&
         Stamp(worker.at_hand.stamp()) == run.assignment().stamp();
}

}  // namespace

void Standstill::NoteAtHand(Worker& worker, const v1::AtHand& at_hand) {
  const bool moves = worker.at_hand.progress() != at_hand.progress();
  worker.at_hand = at_hand;
  Run* run = worker.held ? ledger_.FindRun(*worker.held) : nullptr;
  if (run != nullptr && moves && IsAt(worker, *run)) NoteProgress(*run);
}

absl::Duration Standstill::Limit(const Run& run) const {
  const std::deque<v1::StepRecord>& recent = steps_.Recent(run);
  if (recent.empty()) {
    const double predicted = run.record.plan->prediction.step_seconds;
    return kFirstStepPatience *
           std::max(ledger_.options().progress_timeout, kMedianSteps * absl::Seconds(predicted));
  }
  std::vector<double> seconds;
  for (const v1::StepRecord& step : recent) seconds.push_back(step.seconds());
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(ledger_.options().progress_timeout, kMedianSteps * absl::Seconds(*middle));
}

bool Standstill::IsExcused(const Run& run) const {
  if (troubles_.Any(run) || failures_.AwaitsCause(run)) return true;
  return std::ranges::any_of(run.stages, [this, &run](const StageRecord& stage) {
    const Worker* worker = ledger_.FindWorker(stage.worker);
    return stage.detached ||
           (worker != nullptr && IsAt(*worker, run) && worker->at_hand.writes_state());
  });
}

bool Standstill::Check(Run& run) {
  if (run.record.state != RunState::kRunning && run.record.state != RunState::kFinishing) {
    return false;
  }
  if (IsExcused(run)) NoteProgress(run);
  const absl::Duration stood = ledger_.now() - progressed_at_.Of(run);
  if (stood < ledger_.options().progress_timeout || stood < Limit(run)) return false;
  std::vector<std::string> said;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.FindWorker(stage.worker);
    const bool speaks = worker != nullptr && IsAt(*worker, run);
    said.push_back(speaks ? fmt::format("{} is {} in step {}", ledger_.Label(stage),
                                        Quoted(worker->at_hand.doing()), worker->at_hand.step())
                          : fmt::format("{} does not say what it is at", ledger_.Label(stage)));
  }
  ledger_.Count(FaultKind::kRunStalled);
  failures_.Interrupt(run,
                      fmt::format("no stage has made progress for {} after step {}: {}",
                                  longhaul::FormatDuration(stood), run.record.step, Join(said)));
  return true;
}

}  // namespace longhaul::coordinator
