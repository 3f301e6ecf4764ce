#include "coordinator/state/life/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/text.h"
#include "run/kinds/schedules.h"

namespace longhaul::coordinator {

void Stages::OnReady(Run& run, StageRecord& stage, const v1::StageReady& ready) {
  if (run.record.state != RunState::kPreparing || stage.IsReady()) return;
  const uint64_t expected = run.assignment().start_step;
  if (ready.start_step() != expected) {
    failures_.Fail(run,
                   fmt::format("{} is ready to begin after step {} where the plan says step {}",
                               ledger_.Label(stage), ready.start_step(), expected));
    return;
  }
  stage.MovePhase(StageTrigger::kSaidReady);
  ledger_.Changed(run);
  BeginIfAllReady(run);
}

void Stages::BeginIfAllReady(Run& run) {
  const bool all = std::ranges::all_of(
      run.stages, [](const StageRecord& one) { return one.IsReady() && one.IsAttached(); });
  if (!all) return;
  moves_.Move(run, Trigger::kAllReady, "",
              run.stages.size() == 1 ? "its stage is ready"
                                     : fmt::format("all {} stages are ready", run.stages.size()));
}

void Stages::OnFinished(Run& run, StageRecord& stage, const v1::StageFinished& finished) {
  if (stage.HasFinished()) return;
  if (run.record.state != RunState::kRunning && run.record.state != RunState::kFinishing) return;
  const uint64_t steps = run.record.spec.train.steps;
  if (finished.stopped() ? finished.step() > steps : finished.step() != steps) {
    failures_.Fail(run, fmt::format("{} ended at step {} of {}", ledger_.Label(stage),
                                    finished.step(), steps));
    return;
  }
  stage.MovePhase(finished.stopped() ? StageTrigger::kSaidStopped : StageTrigger::kSaidFinished);
  stage.finished_step = finished.step();
  if (run.record.state == RunState::kRunning) {
    moves_.Move(run, Trigger::kStageFinished, "",
                fmt::format("{} has ended", ledger_.Label(stage)));
  } else {
    ledger_.Changed(run);
  }
  uint64_t step = steps;
  bool stopped = false;
  for (const StageRecord& one : run.stages) {
    if (!one.HasFinished()) return;
    step = std::min(step, one.finished_step);
    stopped = stopped || one.phase == StagePhase::kStopped;
  }
  run.record.step = std::max(run.record.step, step);
  if (stopped && step < steps && run.record.resize_asked) {
    failures_.EndForResize(run, step);
  } else if (stopped && step < steps) {
    moves_.Move(run, Trigger::kAllStopped,
                fmt::format("stopped by request after step {}{}", step, HowToResume(run.record)));
  } else {
    moves_.Move(run, Trigger::kAllFinished, "",
                steps > 0 ? fmt::format("all {} steps", steps) : "no step was asked for");
  }
}

void Stages::On(event::StopAsked& asked) {
  ledger_.Do(command::Reply<v1::StopReply>{asked.request, Stop(asked)});
}

namespace {

// Where steps overlap, the next step has begun, too, and is not thrown away.
std::string EndsAfter(const RunRecord& record) {
  const RunSpec& spec = record.spec;
  const bool overlaps = TraitsOf(spec.pipeline.schedule).overlaps_steps;
  const uint64_t last = std::min(record.step + (overlaps ? 2 : 1), spec.train.steps);
  return fmt::format("{} ends after the step under way ({}), with a checkpoint", record.id.value(),
                     last);
}

}  // namespace

StatusOr<v1::StopReply> Stages::Stop(const event::StopAsked& asked) {
  LH_ASSIGN_OR_RETURN(Run* const found, ledger_.RunCalled(asked.run));
  Run& run = *found;
  const std::string& id = run.record.id.value();
  std::string message;
  if (HasEnded(run.record.state)) {
    message = fmt::format("{} has ended already: {}", id, ToString(run.record.state));
  } else if (!asked.now && run.record.state == RunState::kRunning) {
    run.record.stop_asked = true;
    moves_.Move(run, Trigger::kEndAsked, "",
                "stop asked, ends after the step under way, with a checkpoint");
    message = EndsAfter(run.record);
  } else if (!asked.now && run.record.state == RunState::kFinishing && run.record.resize_asked) {
    run.record.resize_asked = false;
    run.record.stop_asked = true;
    ledger_.Store(run);
    ledger_.Log(&run, "state", "finishing: stop asked, so it does not go on");
    message = EndsAfter(run.record);
  } else if (!asked.now && run.record.state == RunState::kFinishing) {
    message = fmt::format("{} is ending already", id);
  } else {
    const bool begun = run.record.step > 0;
    moves_.Move(run, Trigger::kStopAsked,
                fmt::format("stopped at once by request{}{}",
                            begun ? fmt::format(" after step {}", run.record.step) : std::string(),
                            begun ? HowToResume(run.record) : std::string()));
    message = fmt::format("{} is stopped", id);
  }
  v1::StopReply reply;
  reply.set_message(message);
  return reply;
}

void Stages::OnError(Run& run, StageRecord& stage, const v1::RunError& error) {
  std::string where;
  if (run.record.state != RunState::kPreparing) {
    where = fmt::format(" at step {}", std::max(error.step(), run.record.step));
  }
  if (error.restarts_for() != v1::WORKER_FAULT_NONE) {
    failures_.Interrupt(run, fmt::format("{} {}", ledger_.Label(stage), Quoted(error.message())));
    return;
  }
  if (error.newest_epoch() > 0) {
    failures_.Interrupt(run, fmt::format("{} refused this epoch: {}", ledger_.Label(stage),
                                         Quoted(error.message())));
    return;
  }
  const Edge* edge =
      error.has_lost_edge() ? run.assignment().Find(EdgeId(error.lost_edge())) : nullptr;
  if (edge == nullptr || (edge->from != stage.id && edge->to != stage.id)) {
    failures_.Interrupt(
        run, fmt::format("{} failed{}: {}", ledger_.Label(stage), where, Quoted(error.message())),
        /*is_error=*/true);
    return;
  }
  const StageRecord& peer = *run.Find(edge->PeerOf(stage.id));
  if (failures_.suspicion(run) && failures_.suspicion(run)->missing) {
    // The first to miss its neighbour is nearest to the cause, unless that neighbour is there and
    // misses another one: the two may have reported within a moment.
    const bool passes_on = failures_.suspicion(run)->missing == stage.id &&
                           failures_.suspicion(run)->accuser != peer.id;
    if (!passes_on) return;
  }
  failures_.Suspect(
      run, {fmt::format("{} lost its link to {}{}: {}; {}", ledger_.Label(stage),
                        ledger_.Label(peer), where, Quoted(error.message()),
                        peer.IsAttached()
                            ? "both are still connected to the coordinator, so look at the "
                              "network between them"
                            : "that worker is not connected to the coordinator"),
            ledger_.now() + kCausePatience, peer.id, stage.id});
}

void Stages::OnLost(Run& run, StageRecord& stage, const std::string& why) {
  stage.MovePresence(StageTrigger::kLost);
  ledger_.Changed(run);
  if (stage.HasFinished()) return;  // it has done its part
  run.workers_lost.push_back(stage.name);
  ledger_.Count(FaultKind::kStageLost);
  const Worker* worker = ledger_.FindWorker(stage.worker);
  const bool left = worker != nullptr && worker->leaves_at.has_value() &&
                    worker->incarnation == stage.incarnation;
  if (!left) health_.NoteFault(&run, stage.worker, stage.incarnation, HealthBook::Fault::kDied);
  std::string where;
  if (run.record.state == RunState::kPreparing) {
    where = " while the run was being prepared";
  } else if (run.record.step > 0) {
    where = fmt::format(" after step {}", run.record.step);
  }
  failures_.Interrupt(run, fmt::format("{} was lost{}: {}", ledger_.Label(stage), where, why));
}

void Stages::CheckTimers(Run& run) {
  const std::optional<MonoTime> ready_until = ready_until_.Of(run);
  if (failures_.nonfinite(run) && ledger_.now() >= failures_.nonfinite(run)->until) {
    failures_.Fail(run, "");
  } else if (CheckDetached(run) || standstill_.Check(run)) {
    // The run has been interrupted.
  } else if (failures_.suspicion(run) && ledger_.now() >= failures_.suspicion(run)->until) {
    const std::string cause = failures_.suspicion(run)->sentence;  // Interrupt forgets it
    failures_.Interrupt(run, cause);
  } else if (ready_until && ledger_.now() >= *ready_until) {
    std::vector<std::string> missing;
    for (const StageRecord& stage : run.stages) {
      if (!stage.IsReady() || !stage.IsAttached()) missing.push_back(ledger_.Label(stage));
    }
    failures_.Interrupt(run, fmt::format("{} did not become ready within {:g} s", Join(missing),
                                         absl::ToDoubleSeconds(ledger_.options().ready_timeout)));
  }
}

void Stages::CheckInvariants(const Run& run) const {
  const RunRecord& record = run.record;
  const std::string& id = record.id.value();
  LH_CHECK(ready_until_.Of(run).has_value() <= (record.state == RunState::kPreparing),
           "run {} is {} and waits for stages to be ready", id, ToString(record.state));
  if (!HasStages(record.state)) return;
  LH_CHECK(record.plan && record.plan->assignment.epoch == record.epoch,
           "run {} is active without a plan of epoch {}", id, record.epoch.value());
  LH_CHECK(!run.stages.empty() && run.stages.size() == run.assignment().cells.size(),
           "run {} has {} stages, its plan {}", id, run.stages.size(),
           run.assignment().cells.size());
  bool all_ready = true, all_finished = true;
  for (const StageRecord& stage : run.stages) {
    all_ready = all_ready && stage.IsReady();
    all_finished = all_finished && stage.HasFinished();
    LH_CHECK(run.assignment().cells[stage.place].id == stage.id,
             "{} of run {} is filed in another place than in the plan", ToString(stage.id), id);
    const auto it = ledger_.workers().find(stage.worker);
    const bool live = it != ledger_.workers().end() && it->second.session &&
                      it->second.incarnation == stage.incarnation && it->second.held == record.id;
    LH_CHECK(stage.detached.has_value() == (stage.presence == Presence::kDetached),
             "{} of run {} is {} and {} a detachment", ToString(stage.id), id,
             ToString(stage.presence), stage.detached ? "has" : "lacks");
    if (stage.IsAttached()) {
      LH_CHECK(live, "{} of run {} is attached to worker {}, which is not there",
               ToString(stage.id), id, stage.worker.value());
    } else {
      LH_CHECK(stage.HasFinished() || stage.detached, "{} of run {} has no worker",
               ToString(stage.id), id);
    }
  }
  LH_CHECK(all_ready || record.state == RunState::kPreparing,
           "run {} is {} before all stages were ready", id, ToString(record.state));
  LH_CHECK(!all_finished, "run {} goes on though all stages finished", id);
}

MonoTime Stages::NextWake(const Run& run) const {
  MonoTime wake = ready_until_.Of(run).value_or(MonoTime::max());
  if (!HasStages(run.record.state)) return wake;
  for (const StageRecord& stage : run.stages) {
    if (!stage.detached) continue;
    wake = std::min(wake, stage.detached->until);
    if (const std::optional<MonoTime> dead_at = DeadAt(run, stage)) wake = std::min(wake, *dead_at);
  }
  return wake;
}

void Stages::OnMove(Run& run, const Transition& row) {
  ready_until_.Forget(run.record.id);
  if (row.to == RunState::kPreparing) {
    ready_until_[run] = ledger_.now() + ledger_.options().ready_timeout;
  }
  for (StageRecord& stage : run.stages) {
    const bool waits_no_more = EndsEpoch(row) || HasEnded(row.to);
    if (stage.detached && waits_no_more) stage.MovePresence(StageTrigger::kLost);
    if (!EndsEpoch(row)) continue;
    stage.MovePhase(StageTrigger::kEpochEnded);
    stage.finished_step = 0;
  }
}

}  // namespace longhaul::coordinator
