// A worker whose session ends is detached: it keeps its stage for a while, because training goes on
// without the coordinator. It is lost when that time is over, when another incarnation of it comes,
// when a neighbour has ended its link to it, or when it is seen to be dead.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

// A process that ends closes all its connections at once. One that lives dials again within this
// time, or was only out of reach, and then its links are silent rather than closed.
constexpr absl::Duration kDeadPatience = absl::Seconds(2);

}  // namespace

void Core::Detach(Run& run, StageRecord& stage, const std::string& why) {
  stage.attached = false;
  Changed(run);
  if (stage.finished) return;  // it has done its part
  stage.detached = {.why = why, .since = now_, .until = now_ + run.record.spec.reattach_timeout};
  Log(&run, "worker",
      fmt::format("{} has no connection to the coordinator ({}); it keeps its stage for {:g} s",
                  Label(stage), why, absl::ToDoubleSeconds(run.record.spec.reattach_timeout)));
}

void Core::DetachAll(Run& run) {
  for (StageRecord& stage : run.stages) {
    stage.detached = {.why = "the coordinator restarted",
                      .since = created_,
                      .until = created_ + run.record.spec.reattach_timeout,
                      .by_restart = true};
  }
}

void Core::Reattach(Run& run, StageRecord& stage) {
  stage.attached = true;
  Changed(run);
  // Its last word on its links may be out of date: a later one may be lost with its connection.
  for (auto& [edge, trouble] : run.troubled_links) trouble.stages.erase(stage.id);
  std::erase_if(run.troubled_links, [](const auto& entry) { return entry.second.stages.empty(); });
  const std::optional<Detachment> was = std::exchange(stage.detached, std::nullopt);
  if (!was) return;
  if (!was->by_restart) {
    Log(&run, "worker",
        fmt::format("{} is back after {:.1f} s", Label(stage),
                    absl::ToDoubleSeconds(now_ - was->since)));
    return;
  }
  const bool all = std::ranges::none_of(
      run.stages, [](const StageRecord& one) { return one.detached && one.detached->by_restart; });
  if (!all) return;
  if (run.record.state == RunState::kPreparing) run.ready_until = now_ + options_.ready_timeout;
  Log(&run, "note", "all workers of the run are back");
}

std::optional<MonoTime> Core::DeadAt(const Run& run, const StageRecord& stage) const {
  if (!stage.detached || stage.detached->by_restart) return std::nullopt;
  // A neighbour has given it up, and cannot go on without it.
  if (run.suspicion && run.suspicion->missing == stage.id) return stage.detached->since;
  MonoTime closed = stage.detached->since;
  bool missed = false;
  for (const Edge& edge : run.assignment().edges) {
    if (edge.from != stage.id && edge.to != stage.id) continue;
    const StageRecord& peer = *run.Find(edge.PeerOf(stage.id));
    if (!peer.attached || peer.finished) continue;  // it cannot tell, or is not interested
    const auto trouble = run.troubled_links.find(edge.id);
    if (trouble == run.troubled_links.end()) return std::nullopt;
    const auto said = trouble->second.stages.find(peer.id);
    if (said == trouble->second.stages.end() || !said->second) return std::nullopt;
    closed = std::max(closed, trouble->second.lost_at);
    missed = true;
  }
  if (!missed) return std::nullopt;
  return closed + kDeadPatience;
}

bool Core::CheckDetached(Run& run) {
  if (!HasStages(run.record.state)) return false;
  for (StageRecord& stage : run.stages) {
    if (!stage.detached) continue;
    const std::optional<MonoTime> dead_at = DeadAt(run, stage);
    if (dead_at && now_ >= *dead_at) {
      OnStageLost(run, stage,
                  fmt::format("{}, and its neighbours miss it too", stage.detached->why));
      return true;
    }
  }
  const double limit = absl::ToDoubleSeconds(run.record.spec.reattach_timeout);
  std::vector<std::string> missing;  // since the coordinator's restart
  for (StageRecord& stage : run.stages) {
    if (!stage.detached || now_ < stage.detached->until) continue;
    if (!stage.detached->by_restart) {
      OnStageLost(
          run, stage,
          fmt::format("{}, and it did not come back within {:g} s", stage.detached->why, limit));
      return true;
    }
    missing.push_back(Label(stage));
    run.workers_lost.push_back(stage.name);
  }
  if (missing.empty()) return false;
  Interrupt(run, fmt::format("{} did not come back within {:g} s of the coordinator's restart",
                             Join(missing), limit));
  return true;
}

MonoTime Core::DetachedWake(const Run& run) const {
  MonoTime wake = MonoTime::max();
  if (!HasStages(run.record.state)) return wake;
  for (const StageRecord& stage : run.stages) {
    if (!stage.detached) continue;
    wake = std::min(wake, stage.detached->until);
    if (const std::optional<MonoTime> dead_at = DeadAt(run, stage)) wake = std::min(wake, *dead_at);
  }
  return wake;
}

}  // namespace longhaul::coordinator
