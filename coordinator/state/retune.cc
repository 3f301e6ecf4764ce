// Depths and the order of data follow what is measured while a run trains.
//
// No stage may wait for more activations than a stage above it keeps in flight, in any step, or
// both would wait for each other; and stages begin a step at times of their own. So a change is
// made in up to three phases, each of which is safe beside the one before: depths that are to grow
// grow, or, where a coordinator that was restarted does not know what its stages have, become as
// large as they may be; then the leads; then the depths that are to shrink. A stage takes what it
// is asked for when its next step begins, and says so then. It begins no step before all others
// have done their part of the one before; so when all have said so, no stage will begin a step in
// which another one is a phase behind.
#include "coordinator/planner/retune.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/core.h"

namespace longhaul::coordinator {
namespace {

constexpr uint32_t kProtocolWithRetune = 4;
// Medians of so many steps count.
constexpr size_t kRetuneSteps = 8;
// The simulator takes a part of a second for many stages. After each change it waits twice as long:
// where it is wrong about a pipeline it must not change it to and fro.
constexpr absl::Duration kFirstRetunePause = absl::Seconds(10);
constexpr absl::Duration kLongestRetunePause = absl::Hours(1);

std::vector<StageSetting> SettingsOf(const v1::Plan& plan) {
  std::vector<StageSetting> settings;
  for (const v1::StagePlan& stage : plan.stages()) {
    settings.push_back({stage.depth(), stage.activation_lead()});
  }
  return settings;
}

}  // namespace

void Core::BeginTuning(Run& run) {
  run.tuning = Tuning();
  run.tuning.pause = kFirstRetunePause;
  run.tuning.held = SettingsOf(*run.record.plan);
}

// Of a coordinator that was here before: a change may be half made.
void Core::RecoverTuning(Run& run) {
  BeginTuning(run);
  if (run.record.plan->retunes() == 0) return;
  run.tuning.held.clear();
  AdvanceRetune(run);
}

void Core::ConsiderRetune(Run& run, const PartialStep& partial) {
  Tuning& tuning = run.tuning;
  const RunSpec& spec = run.record.spec;
  v1::Plan& plan = *run.record.plan;
  if (tuning.phase != Tuning::Phase::kNone || !MayRetune(spec, plan)) return;
  tuning.steps.push_back(SeenIn(spec, partial.reports));
  if (tuning.steps.size() > kRetuneSteps) tuning.steps.erase(tuning.steps.begin());
  if (tuning.steps.size() < kRetuneSteps || now_ < tuning.not_before) return;
  const Seen median = MedianOf(tuning.steps);
  if (tuning.considered && !Differs(median, *tuning.considered)) return;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker == nullptr || worker->hello.protocol_max() < kProtocolWithRetune) return;
  }
  tuning.considered = median;
  tuning.not_before = now_ + tuning.pause;
  StatusOr<std::optional<v1::Plan>> better = options_.retune(spec, plan, median);
  if (!better.ok()) {
    tuning.pause = std::min(2 * tuning.pause, kLongestRetunePause);
    Log(&run, "plan",
        fmt::format("depths and order stay as they are after step {}, because what is measured "
                    "cannot be simulated: {}",
                    run.record.step, Message(better.status())));
    return;
  }
  if (!*better) return;
  plan = **std::move(better);
  tuning.steps.clear();
  tuning.considered.reset();  // what is seen with the new depths may say more
  tuning.pause = std::min(2 * tuning.pause, kLongestRetunePause);
  Store(run);
  Log(&run, "plan",
      fmt::format("depths or order change after step {}: {}", run.record.step,
                  plan.retune_reason()));
  AdvanceRetune(run);
}

std::vector<StageSetting> Core::SettingsOfPhase(const Run& run) const {
  const Tuning& tuning = run.tuning;
  std::vector<StageSetting> settings = SettingsOf(*run.record.plan);
  if (tuning.phase == Tuning::Phase::kSettle) return settings;
  for (size_t s = 0; s < settings.size(); ++s) {
    const bool known = !tuning.held.empty();
    const v1::StagePlan& stage = run.record.plan->stages(static_cast<int>(s));
    settings[s].depth = known ? std::max(settings[s].depth, tuning.held[s].depth)
                              : MostDepth(run.record.spec, stage);
    if (tuning.phase == Tuning::Phase::kRaise) {
      settings[s].activation_lead = known ? tuning.held[s].activation_lead : std::nullopt;
    }
  }
  return settings;
}

// To the next phase that asks for something, or to the end.
void Core::AdvanceRetune(Run& run) {
  Tuning& tuning = run.tuning;
  while (tuning.phase != Tuning::Phase::kSettle) {
    tuning.phase = static_cast<Tuning::Phase>(static_cast<int>(tuning.phase) + 1);
    tuning.asked = SettingsOfPhase(run);
    if (tuning.asked == tuning.held) continue;
    tuning.id = next_retune_++;
    tuning.since.assign(run.stages.size(), std::nullopt);
    for (const StageRecord& stage : run.stages) {
      const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
      if (worker != nullptr) SendRetune(*worker, run, stage);
    }
    return;
  }
  tuning.phase = Tuning::Phase::kNone;
  tuning.asked.clear();
  uint64_t step = 0;
  for (const std::optional<uint64_t>& since : tuning.since) step = std::max(step, *since);
  Log(&run, "plan",
      fmt::format("from step {} on all stages have the depths and the order of the plan", step));
}

void Core::SendRetune(const Worker& worker, const Run& run, const StageRecord& stage) {
  const Tuning& tuning = run.tuning;
  if (tuning.phase == Tuning::Phase::kNone || tuning.since[stage.index]) return;
  const StageSetting& asked = tuning.asked[stage.index];
  v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
  v1::Retune& retune = *command.mutable_retune();
  retune.set_retune(tuning.id);
  retune.set_depth(asked.depth);
  if (asked.activation_lead) retune.set_activation_lead(*asked.activation_lead);
  Send(worker, std::move(command));
}

void Core::OnRetuned(Run& run, const StageRecord& stage, const v1::Retuned& retuned) {
  Tuning& tuning = run.tuning;
  if (tuning.phase == Tuning::Phase::kNone || retuned.retune() != tuning.id ||
      retuned.step() > run.record.spec.train.steps) {
    return;
  }
  tuning.since[stage.index] = retuned.step();
  const bool all =
      std::ranges::all_of(tuning.since, [](const auto& one) { return one.has_value(); });
  if (!all) return;
  tuning.held = tuning.asked;
  AdvanceRetune(run);
}

}  // namespace longhaul::coordinator
