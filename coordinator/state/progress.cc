// A run that stands still though all its workers are there and all links are well. A worker sees
// for itself that a thread of its stage is stuck; this is for what nobody sees.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

constexpr int kMedianSteps = 20;
// A first step also records passes, fills caches and has no time to compare with.
constexpr int kFirstStepPatience = 10;

}  // namespace

void Core::NoteAtHand(Worker& worker, const v1::AtHand& at_hand) {
  const bool moves = worker.at_hand.progress() != at_hand.progress();
  worker.at_hand = at_hand;
  Run* run = worker.held ? FindRun(*worker.held) : nullptr;
  if (run != nullptr && moves) run->progressed_at = now_;
}

absl::Duration Core::ProgressLimit(const Run& run) const {
  if (run.recent.empty()) {
    const double predicted = run.record.plan->prediction.step_seconds;
    return kFirstStepPatience *
           std::max(options_.progress_timeout, kMedianSteps * absl::Seconds(predicted));
  }
  std::vector<double> seconds;
  for (const v1::StepRecord& step : run.recent) seconds.push_back(step.seconds());
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(options_.progress_timeout, kMedianSteps * absl::Seconds(*middle));
}

bool Core::IsExcused(const Run& run) const {
  if (!run.troubled_links.empty() || run.suspicion || run.nonfinite) return true;
  return std::ranges::any_of(run.stages, [this](const StageRecord& stage) {
    const Worker* worker = FindWorker(stage.worker);
    return stage.detached || (worker != nullptr && worker->at_hand.writes_state());
  });
}

// Needs no wake-up of its own: sessions have one within a heartbeat.
bool Core::CheckProgress(Run& run) {
  if (run.record.state != RunState::kRunning && run.record.state != RunState::kFinishing) {
    return false;
  }
  if (IsExcused(run)) run.progressed_at = now_;
  const absl::Duration stood = now_ - run.progressed_at;
  if (stood < options_.progress_timeout || stood < ProgressLimit(run)) return false;
  std::vector<std::string> said;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = FindWorker(stage.worker);
    const bool speaks = worker != nullptr && worker->at_hand.run_id() == run.record.id.value();
    said.push_back(speaks ? fmt::format("{} is {} in step {}", Label(stage),
                                        Quoted(worker->at_hand.doing()), worker->at_hand.step())
                          : fmt::format("{} does not say what it is at", Label(stage)));
  }
  faults_.Add(FaultKind::kRunStalled);
  Interrupt(run, fmt::format("no stage has made progress for {} after step {}: {}",
                             longhaul::FormatDuration(stood), run.record.step, Join(said)));
  return true;
}

}  // namespace longhaul::coordinator
