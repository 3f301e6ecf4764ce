#include "tests/sim/coordinator/checkers.h"

#include <fmt/format.h>

#include "coordinator/state/transitions.h"

namespace longhaul::coordinator::sim {
namespace {

// In one tick a run may move several times.
bool IsReachable(RunState from, RunState to) {
  std::set<RunState> reached = {from};
  for (size_t round = 0; round < Transitions().size(); ++round) {
    for (const Transition& row : Transitions()) {
      if (reached.contains(row.from)) reached.insert(row.to);
    }
  }
  return reached.contains(to);
}

bool HoldsStages(RunState state) {
  return state == RunState::kPreparing || state == RunState::kRunning ||
         state == RunState::kFinishing;
}

}  // namespace

void Checkers::Restarted() {
  live_.clear();
  open_.clear();
}

void Checkers::Answered(RequestId request) {
  if (open_.erase(request) == 0) {
    Complain(fmt::format("request {} is answered twice, or was never asked", request.value()));
  }
}

void Checkers::Check(const TickResult& result) {
  for (const Write& write : result.writes) {
    if (const auto* run = std::get_if<write::Run>(&write)) {
      CheckRun(run->record);
    } else if (const auto* log = std::get_if<write::LogEvent>(&write)) {
      if (log->event.sequence() != last_event_ + 1) Complain("the numbers of events have a gap");
      last_event_ = log->event.sequence();
    } else if (const auto* step = std::get_if<write::StepDone>(&write)) {
      uint64_t& last = last_step_[{step->run, step->step.epoch()}];
      if (step->step.step() <= last) Complain("a step of an epoch was finished twice");
      last = step->step.step();
    }
  }
  // One incarnation, one stage of one run.
  std::set<std::string> busy;
  for (const auto& [id, record] : records_) {
    if (!HoldsStages(record.state)) continue;
    for (const v1::StagePlan& stage : record.plan->stages()) {
      if (!busy.insert(stage.incarnation()).second) {
        Complain(fmt::format("worker {} has two stages", stage.incarnation()));
      }
    }
  }
  for (const Command& command : result.commands) CheckCommand(command);
}

void Checkers::CheckRun(const RunRecord& record) {
  const auto before = records_.find(record.id);
  if (before != records_.end()) {
    if (record.epoch < before->second.epoch) Complain("an epoch went backwards");
    if (!IsReachable(before->second.state, record.state)) {
      Complain(fmt::format("{} went from {} to {}", record.id.value(),
                           ToString(before->second.state), ToString(record.state)));
    }
  }
  if (!record.checkpoints.empty()) {
    const v1::CheckpointManifest& newest = record.checkpoints.back();
    for (const v1::CheckpointFile& file : newest.files()) {
      if (!world_->shards.contains(
              {record.id.value(), newest.step(), file.stage(), file.worker_id()})) {
        Complain(fmt::format("checkpoint {} of {} was committed without stage {}", newest.step(),
                             record.id.value(), file.stage()));
      }
    }
  }
  if (record.state == RunState::kDone && record.step != record.spec.train.steps) {
    Complain(fmt::format("{} is done at step {}", record.id.value(), record.step));
  }
  records_[record.id] = record;
}

void Checkers::CheckCommand(const Command& command) {
  if (const auto* to = std::get_if<command::ToWorker>(&command)) {
    if (!live_.contains(to->session)) {
      Complain(fmt::format("a command for session {}, which is gone", to->session.value()));
    }
    const auto record = records_.find(RunId(to->message.run_id()));
    // The run may have failed later in the same tick; then an Abort is behind the assignment.
    if (to->message.has_assign() &&
        (record == records_.end() || record->second.epoch.value() < to->message.epoch())) {
      Complain("an assignment went out whose epoch was not stored before");
    }
  } else if (const auto* close = std::get_if<command::CloseSession>(&command)) {
    live_.erase(close->session);
  } else if (const auto* submit = std::get_if<command::ReplySubmit>(&command)) {
    Answered(submit->request);
  } else if (const auto* plan = std::get_if<command::ReplyPlan>(&command)) {
    Answered(plan->request);
  } else if (const auto* stop = std::get_if<command::ReplyStop>(&command)) {
    Answered(stop->request);
  }
}

}  // namespace longhaul::coordinator::sim
