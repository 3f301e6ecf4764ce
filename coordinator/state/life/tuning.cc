#include "coordinator/state/life/tuning.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "planner/replicas.h"

namespace longhaul::coordinator {

namespace {

// Medians of this many steps count.
constexpr size_t kRetuneSteps = 8;
// The pause doubles with each change. Where the simulator is wrong about a pipeline, changes would
// go to and fro for ever.
constexpr absl::Duration kFirstRetunePause = absl::Seconds(10);
constexpr absl::Duration kLongestRetunePause = absl::Hours(1);

void WaitLonger(absl::Duration& pause) {
  pause = std::min(2 * pause, kLongestRetunePause);
}

}  // namespace

void LogCutShort(Ledger& ledger, const Run& run, const Plan& plan) {
  if (plan.prediction.cut_short.empty()) return;
  ledger.Log(&run, "plan", "the plan may not be the best: {}", plan.prediction.cut_short);
}

Tuning::Tuning(Ledger& ledger, Computations& computations)
    : ledger_(ledger),
      computations_(computations),
      next_retune_(ledger.FirstNumber("first retune")) {}

void Tuning::OnMove(Run& run, const Transition& row) {
  computations_.Cancel(of_[run].computation);
  of_.Forget(run.record.id);
  if (row.to == RunState::kRunning) Begin(run);
}

void Tuning::Begin(const Run& run) {
  OfRun& tuning = of_[run];
  tuning = OfRun();
  tuning.pause = kFirstRetunePause;
  tuning.change = SettingChange(SettingsOf(*run.record.plan));
}

void Tuning::Restart(Run& run) {
  Begin(run);
  if (run.record.plan->retunes == 0) return;
  of_[run].change = SettingChange();  // the one before may be half made
  BeginChange(run);
}

void Tuning::Consider(Run& run, std::span<const std::optional<v1::StepReport>> reports) {
  OfRun& tuning = of_[run];
  const RunSpec& spec = run.record.spec;
  if (tuning.change.IsUnderWay() || tuning.computation || !MayRetune(spec, *run.record.plan)) {
    return;
  }
  tuning.steps.push_back(SeenIn(spec, run.assignment(), reports));
  if (tuning.steps.size() > kRetuneSteps) tuning.steps.erase(tuning.steps.begin());
  if (tuning.steps.size() < kRetuneSteps || ledger_.now() < tuning.not_before) return;
  const Seen median = MedianOf(tuning.steps);
  if (tuning.considered && !Differs(median, *tuning.considered)) return;
  for (const StageRecord& stage : run.stages) {
    if (ledger_.LiveWorkerOf(stage.worker, stage.incarnation) == nullptr) return;
  }
  tuning.considered = median;
  tuning.not_before = ledger_.now() + tuning.pause;
  tuning.computation = computations_.Ask(
      command::ComputeRetune{.id = {},
                             .spec = spec.WithReplicas(ReplicasOf(run.assignment())),
                             .plan = *run.record.plan,
                             .seen = median});
}

void Tuning::OnFailed(const Run& run, const Status& why) {
  WaitLonger(of_[run].pause);
  ledger_.Log(&run, "plan",
              "depths and order stay as they are after step {}, because what is measured "
              "cannot be simulated: {}",
              run.record.step, Message(why));
}

void Tuning::Adopt(Run& run, Plan better) {
  OfRun& tuning = of_[run];
  // Workers may have moved while it was computed.
  for (Cell& cell : better.assignment.cells) {
    if (const Cell* now = run.assignment().Find(cell.id)) cell.endpoints = now->endpoints;
  }
  const std::string cut_short = run.record.plan->prediction.cut_short;
  run.record.plan = std::move(better);
  tuning.steps.clear();
  tuning.considered.reset();  // what is seen with the new depths may say more
  WaitLonger(tuning.pause);
  ledger_.Store(run);
  ledger_.Log(&run, "plan", "depths or order change after step {}: {}", run.record.step,
              run.record.plan->retune_reason);
  if (run.record.plan->prediction.cut_short != cut_short)
    LogCutShort(ledger_, run, *run.record.plan);
  BeginChange(run);
}

void Tuning::BeginChange(Run& run) {
  std::vector<uint32_t> most_depths;
  for (const CellEstimate& cell : run.record.plan->cells) {
    most_depths.push_back(MostDepth(run.record.spec, cell));
  }
  of_[run].change.Begin(SettingsOf(*run.record.plan), std::move(most_depths));
  AdvanceChange(run);
}

void Tuning::AdvanceChange(Run& run) {
  SettingChange& change = of_[run].change;
  if (!change.Advance(next_retune_)) {
    ledger_.Log(&run, "plan",
                "from step {} on all stages have the depths and the order of the plan",
                change.since());
    return;
  }
  ++next_retune_;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker != nullptr) SendRetune(*worker, run, stage);
  }
}

void Tuning::SendRetune(const Worker& worker, const Run& run, const StageRecord& stage) {
  const SettingChange& change = of_[run].change;
  const AskedSetting* asked = change.AskedOf(stage.place);
  if (asked == nullptr) return;
  v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
  v1::Retune& retune = *command.mutable_retune();
  retune.set_retune(change.id());
  retune.set_depth(asked->depth);
  if (asked->activation_lead) retune.set_activation_lead(*asked->activation_lead);
  ledger_.Send(worker, std::move(command));
}

void Tuning::OnRetuned(Run& run, const StageRecord& stage, const v1::Retuned& retuned) {
  if (retuned.step() > run.record.spec.train.steps) return;
  if (of_[run].change.Said(stage.place, retuned.retune(), retuned.step())) AdvanceChange(run);
}

void Tuning::On(event::RetuneComputed& computed) {
  const auto found = std::ranges::find_if(
      of_, [&](const auto& one) { return one.second.computation == computed.id; });
  if (found == of_.end()) return;
  Run& run = *ledger_.FindRun(found->first);
  OfRun& tuning = of_[run];
  tuning.computation.reset();
  tuning.not_before = ledger_.now() + tuning.pause;  // however long the search took
  if (!computed.plan.ok()) {
    OnFailed(run, computed.plan.status());
  } else if (*computed.plan) {
    Adopt(run, **std::move(computed.plan));
  }
}

void Tuning::CheckInvariants(const Run& run) const {
  const OfRun& tuning = of_.Of(run);
  // Without a change the settings are the plan's, which CheckAssignment has seen.
  const Cell* unsafe =
      tuning.change.IsUnderWay() ? tuning.change.FirstUnsafe(run.assignment()) : nullptr;
  LH_CHECK(unsafe == nullptr,
           "run {}: {} may wait for more activations than are in flight above it",
           run.record.id.value(), unsafe == nullptr ? "" : ToString(unsafe->id));
  LH_CHECK(!tuning.computation || run.record.state == RunState::kRunning,
           "run {} is {} and waits for a better plan", run.record.id.value(),
           ToString(run.record.state));
}

}  // namespace longhaul::coordinator
