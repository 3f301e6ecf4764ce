#include "coordinator/state/life/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/ledger/manifests.h"

namespace longhaul::coordinator {

namespace {

constexpr absl::Duration kLongestPause = absl::Seconds(60);

// The pause before the nth attempt in a row.
absl::Duration PauseBefore(uint32_t attempt) {
  if (attempt <= 1) return absl::ZeroDuration();
  return std::min(kLongestPause, absl::Seconds(1) * (1 << std::min(attempt - 2, 10U)));
}

}  // namespace

void Failures::Fail(Run& run, const std::string& cause) {
  const bool begun = run.record.state != RunState::kPlanning &&
                     (run.record.step > 0 || run.record.state != RunState::kPreparing ||
                      !run.record.checkpoints.empty());
  const std::string sentence = nonfinite(run) ? NonFiniteSentence(run) : cause;
  moves_.Move(run, Trigger::kFailure, sentence + (begun ? HowToResume(run.record) : std::string()));
}

std::string Failures::NonFiniteSentence(const Run& run) const {
  const NonFinite& what = *nonfinite(run);
  std::string sentence = fmt::format("{} at step {}", what.what, what.step);
  if (const auto& first = of_.Of(run).first_nonfinite) {
    sentence += fmt::format(
        ", where a value that is not finite appeared first in {}{}",
        ledger_.Label(*run.Find(first->second)),
        first->first == what.step ? std::string() : fmt::format(" at step {}", first->first));
  }
  if (run.record.spec.train.on_nonfinite == OnNonfinite::kSkip) {
    sentence += fmt::format("; no more than {} steps in a row are skipped", kMostSkippedInARow);
  }
  return sentence;
}

void Failures::NoteProgress(Run& run) {
  Attempts& attempts = run.record.attempts;
  if (run.record.step <= attempts.best_step) return;
  attempts.best_step = run.record.step;
  attempts.in_a_row = 0;
}

bool Failures::CountAttempt(Run& run, const std::string& cause, const std::string& error) {
  NoteProgress(run);
  Attempts& attempts = run.record.attempts;
  const uint32_t most = run.record.spec.recovery.attempts;
  const bool again = !error.empty() && error == attempts.error;
  attempts.error = error;
  if (most > 0 && again) {
    Fail(run, cause + ", for the second time");
    return false;
  }
  if (++attempts.in_a_row > most) {
    Fail(run, most == 0
                  ? cause
                  : fmt::format("{}; the run has begun again {} times without finishing a new "
                                "step",
                                cause, most));
    return false;
  }
  return true;
}

void Failures::Interrupt(Run& run, const std::string& cause, bool is_error) {
  // A user has asked for the end of the run.
  if (nonfinite(run) || run.record.stop_asked) return Fail(run, cause);
  if (!CountAttempt(run, cause, is_error ? cause : "")) return;
  of_[run].pause = {
      .since = ledger_.now(),
      .not_before = ledger_.now() + PauseBefore(run.record.attempts.in_a_row),
      .until = ledger_.now() + run.record.spec.reattach_timeout,
  };
  moves_.Move(run, Trigger::kInterrupted, cause);
}

void Failures::InterruptPlanning(Run& run, const std::string& cause) {
  if (!CountAttempt(run, cause, "")) return;
  Pause& pause = of_[run].pause;
  pause.not_before = ledger_.now() + PauseBefore(run.record.attempts.in_a_row);
  pause.until = ledger_.now() + run.record.spec.reattach_timeout;
  moves_.Move(run, Trigger::kInterrupted, cause);
}

void Failures::EndForResize(Run& run, uint64_t step) {
  NoteProgress(run);
  std::string why = "for another number of replicas";
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.FindWorker(stage.worker);
    if (worker == nullptr || !worker->leaves_at) continue;
    why = fmt::format("because {} is leaving", ledger_.Label(stage));
    break;
  }
  of_[run].pause = {
      .since = ledger_.now(),
      .not_before = ledger_.now(),
      .until = ledger_.now() + run.record.spec.reattach_timeout,
  };
  moves_.Move(run, Trigger::kResized, fmt::format("stopped after step {} {}", step, why));
}

void Failures::Suspect(const Run& run, Suspicion suspicion) {
  of_[run].suspicion = std::move(suspicion);
}

void Failures::NoteNonFinite(const Run& run, NonFinite nonfinite) {
  std::optional<NonFinite>& known = of_[run].nonfinite;
  if (!known) known = std::move(nonfinite);
}

void Failures::NoteNonFiniteValue(const Run& run, uint64_t step, const CellId& cell) {
  std::optional<std::pair<uint64_t, CellId>>& first = of_[run].first_nonfinite;
  const std::pair<uint64_t, CellId> here(step, cell);
  if (!first || here < *first) first = here;
}

void Failures::WaitAtLeastUntil(const Run& run, MonoTime until) {
  Pause& pause = of_[run].pause;
  pause.until = std::max(pause.until, until);
}

void Failures::Restart(const Run& run) {
  Pause& pause = of_[run].pause;
  if (run.record.state == RunState::kRecovering) pause.since = pause.not_before = ledger_.created();
  pause.until = ledger_.created() + run.record.spec.reattach_timeout;
}

MonoTime Failures::NextWake(const Run& run) const {
  MonoTime wake = MonoTime::max();
  const OfRun& of = of_.Of(run);
  if (of.suspicion) wake = std::min(wake, of.suspicion->until);
  if (of.nonfinite) wake = std::min(wake, of.nonfinite->until);
  const bool pauses = ledger_.now() < of.pause.not_before;
  if (run.record.state == RunState::kQueued && pauses) wake = std::min(wake, of.pause.not_before);
  if (run.record.state == RunState::kRecovering) {
    wake = std::min(wake, pauses ? of.pause.not_before : of.pause.until);
  }
  return wake;
}

void Failures::OnMove(Run& run, const Transition& row) {
  if (row.trigger == Trigger::kResumed) return of_.Forget(run.record.id);
  if (!EndsEpoch(row) && !HasEnded(row.to)) return;
  OfRun& of = of_[run];
  of.suspicion.reset();
  of.nonfinite.reset();
  of.first_nonfinite.reset();
}

}  // namespace longhaul::coordinator
