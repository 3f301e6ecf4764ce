// Depths and the order of data follow what is measured while a run trains: what was seen of its
// steps is put to the planner, and the cells are brought to what that chooses (setting_change.h).
#include "coordinator/planner/retune.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/core.h"

namespace longhaul::coordinator {
namespace {

// Medians of so many steps count.
constexpr size_t kRetuneSteps = 8;
// After each change it waits twice as long: where the simulator is wrong about a pipeline it must
// not change it to and fro.
constexpr absl::Duration kFirstRetunePause = absl::Seconds(10);
constexpr absl::Duration kLongestRetunePause = absl::Hours(1);

void WaitLonger(Tuning& tuning) {
  tuning.pause = std::min(2 * tuning.pause, kLongestRetunePause);
}

}  // namespace

void Core::BeginTuning(Run& run) {
  run.tuning = Tuning();
  run.tuning.pause = kFirstRetunePause;
  run.tuning.change = SettingChange(SettingsOf(*run.record.plan));
}

// Of a coordinator that was here before: a change may be half made.
void Core::RecoverTuning(Run& run) {
  BeginTuning(run);
  if (run.record.plan->retunes == 0) return;
  run.tuning.change = SettingChange();
  BeginChange(run);
}

void Core::ConsiderRetune(Run& run, const PartialStep& partial) {
  Tuning& tuning = run.tuning;
  const RunSpec& spec = run.record.spec;
  if (tuning.change.IsUnderWay() || tuning.computation || !MayRetune(spec, *run.record.plan)) {
    return;
  }
  tuning.steps.push_back(SeenIn(spec, run.assignment(), partial.reports));
  if (tuning.steps.size() > kRetuneSteps) tuning.steps.erase(tuning.steps.begin());
  if (tuning.steps.size() < kRetuneSteps || now_ < tuning.not_before) return;
  const Seen median = MedianOf(tuning.steps);
  if (tuning.considered && !Differs(median, *tuning.considered)) return;
  for (const StageRecord& stage : run.stages) {
    if (LiveWorkerOf(stage.worker, stage.incarnation) == nullptr) return;
  }
  tuning.considered = median;
  tuning.not_before = now_ + tuning.pause;
  Compute(run, median);
}

void Core::RetuneFailed(Run& run, const Status& why) {
  WaitLonger(run.tuning);
  Log(&run, "plan",
      fmt::format("depths and order stay as they are after step {}, because what is measured "
                  "cannot be simulated: {}",
                  run.record.step, Message(why)));
}

void Core::AdoptRetune(Run& run, Plan better) {
  Tuning& tuning = run.tuning;
  // Workers may have moved while it was computed.
  for (Cell& cell : better.assignment.cells) {
    if (const Cell* now = run.assignment().Find(cell.id)) cell.endpoints = now->endpoints;
  }
  const std::string cut_short = run.record.plan->prediction.cut_short;
  run.record.plan = std::move(better);
  tuning.steps.clear();
  tuning.considered.reset();  // what is seen with the new depths may say more
  WaitLonger(tuning);
  Store(run);
  Log(&run, "plan",
      fmt::format("depths or order change after step {}: {}", run.record.step,
                  run.record.plan->retune_reason));
  if (run.record.plan->prediction.cut_short != cut_short) NoteCutShort(run, *run.record.plan);
  BeginChange(run);
}

void Core::BeginChange(Run& run) {
  std::vector<uint32_t> most_depths;
  for (const CellEstimate& cell : run.record.plan->cells) {
    most_depths.push_back(MostDepth(run.record.spec, cell));
  }
  run.tuning.change.Begin(SettingsOf(*run.record.plan), std::move(most_depths));
  AdvanceChange(run);
}

void Core::AdvanceChange(Run& run) {
  if (!run.tuning.change.Advance(next_retune_)) {
    Log(&run, "plan",
        fmt::format("from step {} on all stages have the depths and the order of the plan",
                    run.tuning.change.since()));
    return;
  }
  ++next_retune_;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker != nullptr) SendRetune(*worker, run, stage);
  }
}

void Core::SendRetune(const Worker& worker, const Run& run, const StageRecord& stage) {
  const AskedSetting* asked = run.tuning.change.AskedOf(stage.place);
  if (asked == nullptr) return;
  v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
  v1::Retune& retune = *command.mutable_retune();
  retune.set_retune(run.tuning.change.id());
  retune.set_depth(asked->depth);
  if (asked->activation_lead) retune.set_activation_lead(*asked->activation_lead);
  Send(worker, std::move(command));
}

void Core::OnRetuned(Run& run, const StageRecord& stage, const v1::Retuned& retuned) {
  if (retuned.step() > run.record.spec.train.steps) return;
  if (run.tuning.change.Said(stage.place, retuned.retune(), retuned.step())) AdvanceChange(run);
}

}  // namespace longhaul::coordinator
