// How an epoch becomes ready, ends, is stopped, and fails.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

void Core::OnReady(Run& run, StageRecord& stage, const v1::StageReady& ready) {
  if (run.record.state != RunState::kPreparing || stage.ready) return;
  const uint64_t expected = run.assignment().start_step;
  if (ready.start_step() != expected) {
    Fail(run, fmt::format("{} is ready to begin after step {} where the plan says step {}",
                          Label(stage), ready.start_step(), expected));
    return;
  }
  stage.ready = true;
  Changed(run);
  BeginIfAllReady(run);
}

void Core::BeginIfAllReady(Run& run) {
  const bool all = std::ranges::all_of(
      run.stages, [](const StageRecord& one) { return one.ready && one.attached; });
  if (!all) return;
  Move(run, Trigger::kAllReady, "",
       run.stages.size() == 1 ? "its stage is ready"
                              : fmt::format("all {} stages are ready", run.stages.size()));
}

void Core::SendStart(const Worker& worker, const Run& run) {
  v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
  command.mutable_start();
  Send(worker, std::move(command));
}

void Core::OnFinished(Run& run, StageRecord& stage, const v1::StageFinished& finished) {
  if (stage.finished) return;
  if (run.record.state != RunState::kRunning && run.record.state != RunState::kFinishing) return;
  const uint64_t steps = run.record.spec.train.steps;
  if (finished.stopped() ? finished.step() > steps : finished.step() != steps) {
    Fail(run, fmt::format("{} ended at step {} of {}", Label(stage), finished.step(), steps));
    return;
  }
  stage.finished = true;
  stage.stopped = finished.stopped();
  stage.finished_step = finished.step();
  if (run.record.state == RunState::kRunning) {
    Move(run, Trigger::kStageFinished, "", fmt::format("{} has ended", Label(stage)));
  } else {
    Changed(run);
  }
  uint64_t step = steps;
  bool stopped = false;
  for (const StageRecord& one : run.stages) {
    if (!one.finished) return;
    step = std::min(step, one.finished_step);
    stopped = stopped || one.stopped;
  }
  run.record.step = std::max(run.record.step, step);
  if (stopped && step < steps && run.record.resize_asked) {
    Resize(run, step);
  } else if (stopped && step < steps) {
    Move(run, Trigger::kAllStopped,
         fmt::format("stopped by request after step {}{}", step, HowToResume(run)));
  } else {
    Move(run, Trigger::kAllFinished, "",
         steps > 0 ? fmt::format("all {} steps", steps) : "no step was asked for");
  }
}

void Core::On(event::StopAsked& asked) {
  const Run* found = FindRunByText(asked.run);
  if (found == nullptr) {
    out_.commands.emplace_back(command::ReplyStop{
        asked.request, absl::NotFoundError(fmt::format(
                           "there is no run '{}'; `longhaul ps` lists the runs", asked.run))});
    return;
  }
  Run& run = *FindRun(found->record.id);
  const std::string& id = run.record.id.value();
  std::string message;
  if (HasEnded(run.record.state)) {
    message = fmt::format("{} has ended already: {}", id, ToString(run.record.state));
  } else if (!asked.now && run.record.state == RunState::kRunning) {
    run.record.stop_asked = true;
    Move(run, Trigger::kEndAsked, "",
         "stop asked, ends after the step under way, with a checkpoint");
    message = fmt::format("{} ends after the step under way ({}), with a checkpoint", id,
                          run.record.step + 1);
  } else if (!asked.now && run.record.state == RunState::kFinishing && run.record.resize_asked) {
    run.record.resize_asked = false;
    run.record.stop_asked = true;
    Store(run);
    Log(&run, "state", "finishing: stop asked, so it does not go on with other replicas");
    message = fmt::format("{} ends after the step under way ({}), with a checkpoint", id,
                          run.record.step + 1);
  } else if (!asked.now && run.record.state == RunState::kFinishing) {
    message = fmt::format("{} is ending already", id);
  } else {
    const bool begun = run.record.step > 0;
    Move(run, Trigger::kStopAsked,
         fmt::format("stopped at once by request{}{}",
                     begun ? fmt::format(" after step {}", run.record.step) : std::string(),
                     begun ? HowToResume(run) : std::string()));
    message = fmt::format("{} is stopped", id);
  }
  v1::StopReply reply;
  reply.set_message(message);
  out_.commands.emplace_back(command::ReplyStop{asked.request, std::move(reply)});
}

void Core::SendStop(Run& run) {
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
    if (!stage.is_first || worker == nullptr)
      continue;  // who is away gets the word when it is back
    v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
    command.mutable_stop();
    Send(*worker, std::move(command));
  }
}

void Core::OnError(Run& run, StageRecord& stage, const v1::RunError& error) {
  std::string where;
  if (run.record.state != RunState::kPreparing) {
    where = fmt::format(" at step {}", std::max(error.step(), run.record.step));
  }
  if (error.restarts_for() != v1::WORKER_FAULT_NONE) {
    Interrupt(run, fmt::format("{} {}", Label(stage), Quoted(error.message())));
    return;
  }
  const Edge* edge =
      error.has_lost_edge() ? run.assignment().Find(EdgeId(error.lost_edge())) : nullptr;
  if (edge == nullptr || (edge->from != stage.id && edge->to != stage.id)) {
    Interrupt(run, fmt::format("{} failed{}: {}", Label(stage), where, Quoted(error.message())),
              /*is_error=*/true);
    return;
  }
  const StageRecord& peer = *run.Find(edge->PeerOf(stage.id));
  if (run.suspicion && run.suspicion->missing) {
    // The first to miss its neighbour is nearest to the cause, unless that neighbour is there and
    // misses another one: the two may have reported within a moment.
    const bool passes_on = run.suspicion->missing == stage.id && run.suspicion->accuser != peer.id;
    if (!passes_on) return;
  }
  run.suspicion = {
      fmt::format("{} lost its link to {}{}: {}; {}", Label(stage), Label(peer), where,
                  Quoted(error.message()),
                  peer.attached ? "both are still connected to the coordinator, so look at the "
                                  "network between them"
                                : "that worker is not connected to the coordinator"),
      now_ + kCausePatience, peer.id, stage.id};
}

void Core::OnStageLost(Run& run, StageRecord& stage, const std::string& why) {
  stage.attached = false;
  stage.detached.reset();
  Changed(run);
  if (stage.finished) return;  // it has done its part
  run.workers_lost.push_back(stage.name);
  faults_.Add(FaultKind::kStageLost);
  NoteFault(&run, stage.worker, stage.incarnation, HealthBook::Fault::kDied);
  std::string where;
  if (run.record.state == RunState::kPreparing) {
    where = " while the run was being prepared";
  } else if (run.record.step > 0) {
    where = fmt::format(" after step {}", run.record.step);
  }
  Interrupt(run, fmt::format("{} was lost{}: {}", Label(stage), where, why));
}

void Core::Fail(Run& run, const std::string& cause) {
  const bool begun = run.record.state != RunState::kPlanning &&
                     (run.record.step > 0 || run.record.state != RunState::kPreparing ||
                      !run.record.checkpoints.empty());
  const std::string sentence = run.nonfinite ? NonFiniteSentence(run) : cause;
  Move(run, Trigger::kFailure, sentence + (begun ? HowToResume(run) : std::string()));
}

std::string Core::HowToResume(const Run& run) const {
  if (run.record.checkpoints.empty()) {
    return "; no checkpoint was committed, so longhaul submit run.yaml --resume starts from "
           "scratch";
  }
  const v1::CheckpointManifest* whole = NewestWhole(run.record);
  if (whole == nullptr) {
    return "; put the damaged files back and resume it, or submit it without --resume as a new run";
  }
  const bool newest = whole == &run.record.checkpoints.back();
  return fmt::format("; longhaul submit run.yaml --resume{} goes on from step {}",
                     newest ? std::string() : fmt::format(" --from-step {}", whole->step()),
                     whole->step());
}

std::string Core::NonFiniteSentence(const Run& run) const {
  std::string sentence = fmt::format("{} at step {}", run.nonfinite->what, run.nonfinite->step);
  if (run.first_nonfinite) {
    sentence += fmt::format(", where a value that is not finite appeared first in {}{}",
                            Label(*run.Find(run.first_nonfinite->second)),
                            run.first_nonfinite->first == run.nonfinite->step
                                ? std::string()
                                : fmt::format(" at step {}", run.first_nonfinite->first));
  }
  if (run.record.spec.train.on_nonfinite == OnNonfinite::kSkip) {
    sentence += fmt::format("; no more than {} steps in a row are skipped", kMostSkippedInARow);
  }
  return sentence;
}

void Core::CheckRunTimers(Run& run) {
  if (run.nonfinite && now_ >= run.nonfinite->until) {
    Fail(run, "");
  } else if (CheckDetached(run)) {
    // The run has been interrupted.
  } else if (CheckProgress(run)) {
    // Likewise.
  } else if (run.suspicion && now_ >= run.suspicion->until) {
    Interrupt(run, run.suspicion->sentence);
  } else if (run.ready_until && now_ >= *run.ready_until) {
    std::vector<std::string> missing;
    for (const StageRecord& stage : run.stages) {
      if (!stage.ready || !stage.attached) missing.push_back(Label(stage));
    }
    Interrupt(run, fmt::format("{} did not become ready within {:g} s", Join(missing),
                               absl::ToDoubleSeconds(options_.ready_timeout)));
  }
}

}  // namespace longhaul::coordinator
