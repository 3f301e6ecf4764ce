// Sessions of the workers of stages. A worker whose session ends is detached: it keeps its stage
// for a while, because training goes on without the coordinator. It is lost when that time is over,
// when another incarnation of it comes, when a neighbour has ended its link to it, or when it is
// seen to be dead.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/life/stages.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

// A process that ends closes all its connections at once. One that lives dials again within this
// time, or was only out of reach, and then its links are silent rather than closed.
constexpr absl::Duration kDeadPatience = absl::Seconds(2);

}  // namespace

void Stages::Attach(Worker& worker, Run& run, StageRecord& stage) {
  worker.held = run.record.id;
  Reattach(run, stage);
  const bool has_it = !worker.hello.run_id().empty();
  NoteAddresses(worker, run, stage);
  if (run.record.state == RunState::kPreparing) {
    if (!has_it) stage.MovePhase(StageTrigger::kForgotten);
    if (!stage.IsReady()) orders_.SendAssign(worker, run, stage);
    BeginIfAllReady(run);
  } else if (!stage.HasFinished() && !has_it) {
    // A stage that has finished is kept until the run has ended, so this one failed. Its error may
    // be right behind.
    if (!failures_.suspicion(run)) {
      failures_.Suspect(
          run, {fmt::format("{} came back without its stage{}", ledger_.Label(stage),
                            run.record.step > 0 ? fmt::format(" after step {}", run.record.step)
                                                : std::string()),
                ledger_.now() + kCausePatience});
    }
  } else if (!stage.HasFinished()) {
    if (!stage.HasStarted()) orders_.SendStart(worker, run);
    tuning_.SendRetune(worker, run, stage);
    const bool stops = run.record.stop_asked || run.record.resize_asked;
    if (stops && stage.is_first) orders_.SendStop(run);
  }
}

void Stages::NoteAddresses(const Worker& worker, Run& run, const StageRecord& stage) {
  Cell& cell = run.record.plan->assignment.cells[stage.place];
  std::vector<Endpoint> said = FromProto(worker.hello.endpoints());
  const bool has_moved = cell.endpoints != said;
  if (has_moved) {
    cell.endpoints = std::move(said);
    ledger_.Store(run);
    std::string where;
    for (const Endpoint& endpoint : cell.endpoints) {
      if (endpoint.addresses.empty()) continue;
      where += fmt::format("{}{} {}", where.empty() ? "" : ", ", endpoint.transport,
                           fmt::join(endpoint.addresses, " "));
    }
    ledger_.Log(&run, "worker", "{} has moved: {}", ledger_.Label(stage), Quoted(where));
  }
  for (const Edge& edge : run.assignment().edges) {
    // It may have missed new addresses of neighbours while it was away.
    if (edge.dialler() == stage.id || (has_moved && edge.dialled() == stage.id)) {
      orders_.SendReaddress(run, edge);
    }
  }
}

void Stages::Detach(Run& run, StageRecord& stage, const std::string& why) {
  ledger_.Changed(run);
  if (stage.HasFinished()) {  // it has done its part
    stage.MovePresence(StageTrigger::kLost);
    return;
  }
  stage.Detach(StageTrigger::kSessionEnded,
               {.why = why,
                .since = ledger_.now(),
                .until = ledger_.now() + run.record.spec.reattach_timeout});
  ledger_.Log(&run, "worker",
              "{} has no connection to the coordinator ({}); it keeps its stage for {:g} s",
              ledger_.Label(stage), why, absl::ToDoubleSeconds(run.record.spec.reattach_timeout));
}

void Stages::DetachAll(Run& run) {
  for (StageRecord& stage : run.stages) {
    stage.Detach(StageTrigger::kCoordinatorRestarted,
                 {.why = "the coordinator restarted",
                  .since = ledger_.created(),
                  .until = ledger_.created() + run.record.spec.reattach_timeout,
                  .by_restart = true});
  }
}

void Stages::Reattach(Run& run, StageRecord& stage) {
  const std::optional<Detachment> was = stage.detached;
  stage.MovePresence(StageTrigger::kSessionBegan);
  ledger_.Changed(run);
  troubles_.ForgetWordOf(run, stage);
  if (!was) return;
  if (!was->by_restart) {
    ledger_.Log(&run, "worker", "{} is back after {:.1f} s", ledger_.Label(stage),
                absl::ToDoubleSeconds(ledger_.now() - was->since));
    return;
  }
  const bool all = std::ranges::none_of(
      run.stages, [](const StageRecord& one) { return one.detached && one.detached->by_restart; });
  if (!all) return;
  if (run.record.state == RunState::kPreparing)
    ready_until_[run] = ledger_.now() + ledger_.options().ready_timeout;
  ledger_.Log(&run, "note", "all workers of the run are back");
}

std::optional<MonoTime> Stages::DeadAt(const Run& run, const StageRecord& stage) const {
  if (!stage.detached || stage.detached->by_restart) return std::nullopt;
  // A neighbour has given it up, and cannot go on without it.
  if (failures_.suspicion(run) && failures_.suspicion(run)->missing == stage.id)
    return stage.detached->since;
  MonoTime closed = stage.detached->since;
  bool missed = false;
  for (const Edge& edge : run.assignment().edges) {
    if (edge.from != stage.id && edge.to != stage.id) continue;
    const StageRecord& peer = *run.Find(edge.PeerOf(stage.id));
    if (!peer.IsAttached() || peer.HasFinished()) continue;  // it cannot tell, or is not interested
    const LinkTrouble* trouble = troubles_.Find(run, edge.id);
    if (trouble == nullptr) return std::nullopt;
    const auto said = trouble->stages.find(peer.id);
    if (said == trouble->stages.end() || !said->second) return std::nullopt;
    closed = std::max(closed, trouble->lost_at);
    missed = true;
  }
  if (!missed) return std::nullopt;
  return closed + kDeadPatience;
}

bool Stages::CheckDetached(Run& run) {
  if (!HasStages(run.record.state)) return false;
  for (StageRecord& stage : run.stages) {
    if (!stage.detached) continue;
    const std::optional<MonoTime> dead_at = DeadAt(run, stage);
    if (dead_at && ledger_.now() >= *dead_at) {
      OnLost(run, stage, fmt::format("{}, and its neighbours miss it too", stage.detached->why));
      return true;
    }
  }
  const double limit = absl::ToDoubleSeconds(run.record.spec.reattach_timeout);
  std::vector<std::string> missing;  // since the coordinator's restart
  for (StageRecord& stage : run.stages) {
    if (!stage.detached || ledger_.now() < stage.detached->until) continue;
    if (!stage.detached->by_restart) {
      OnLost(run, stage,
             fmt::format("{}, and it did not come back within {:g} s", stage.detached->why, limit));
      return true;
    }
    missing.push_back(ledger_.Label(stage));
    run.workers_lost.push_back(stage.name);
  }
  if (missing.empty()) return false;
  failures_.Interrupt(run,
                      fmt::format("{} did not come back within {:g} s of the coordinator's restart",
                                  Join(missing), limit));
  return true;
}

}  // namespace longhaul::coordinator
