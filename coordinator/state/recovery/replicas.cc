#include "coordinator/state/recovery/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "coordinator/state/ledger/replica_counts.h"
#include "planner/replicas.h"
#include "planner/resize.h"

namespace longhaul::coordinator {

void Replicas::Advance() {
  for (Run* run : ledger_.Active()) {
    const RunRecord& record = run->record;
    if (record.state != RunState::kRunning) continue;
    const uint32_t now = ReplicasOf(run->assignment()), wanted = record.ReplicasWanted();
    const bool is_time = now != wanted && record.step > run->assignment().start_step &&
                         record.step + 1 < record.spec.train.steps;
    const bool all_hear = std::ranges::all_of(run->stages, [](const StageRecord& stage) {
      return stage.IsAttached() && stage.HasStarted();
    });
    if (!is_time || !all_hear || failures_.AwaitsCause(*run)) continue;
    uint32_t next = wanted;
    if (wanted > now) {
      if (spares_.SparesOf(*run).size() < StagesOfReplica(run->assignment())) continue;
      const Crew crew = crews_.For(*run);
      next = static_cast<uint32_t>(crew.size() / StagesOfReplica(run->assignment()));
      if (next <= now || !IsWhole(crew) || !AreWarm(*run, crew)) continue;
    }
    run->record.resize_asked = true;
    moves_.Move(
        *run, Trigger::kEndAsked, "",
        fmt::format("stops after the step under way, with a checkpoint, and goes on from there "
                    "with {} instead of {}",
                    ReplicaText(next), now));
  }
}

bool Replicas::AreWarm(const Run& run, const Crew& crew) const {
  return std::ranges::all_of(crew, [&](const Worker* worker) {
    return run.record.spec.replay || worker->layers || !spares_.IsSpareOf(*worker, run);
  });
}

void Replicas::On(event::ReplicasAsked& asked) {
  ledger_.Do(command::Reply<v1::ReplicasReply>{asked.request, Set(asked)});
}

StatusOr<v1::ReplicasReply> Replicas::Set(const event::ReplicasAsked& asked) {
  LH_ASSIGN_OR_RETURN(Run* const found, ledger_.RunCalled(asked.run));
  Run& run = *found;
  const std::string& id = run.record.id.value();
  if (HasEnded(run.record.state)) {
    return FailedPrecondition(
        "{} has ended ({}); set pipeline.replicas in its run file and resume it", id,
        ToString(run.record.state));
  }
  const RunSpec& spec = run.record.spec;
  if (spec.replicas.count_auto) {
    return FailedPrecondition(
        "{} leaves the number of its replicas to its first plan (pipeline.replicas auto), which is "
        "not made yet; wait until it trains, or stop it and submit it with a number",
        id);
  }
  if (spec.replicas.trains_apart()) {
    return FailedPrecondition(
        "{} trains its replicas apart (pipeline.gradients local-sgd), and in this version these "
        "keep their number, because each has an optimizer of its own",
        id);
  }
  LH_RETURN_IF_ERROR(ParseRunSpec(ToYaml(spec.WithReplicas(asked.replicas)), id, {}).status());
  run.record.replicas_wanted = asked.replicas;
  ledger_.Store(run);
  const std::string sentence =
      fmt::format("{} wanted by `longhaul replicas`", ReplicaText(asked.replicas));
  ledger_.Log(&run, "replicas", sentence);
  if (run.record.plan && HasStages(run.record.state))
    spares_.ReleaseBeyond(run, spares_.SparesWanted(run));
  v1::ReplicasReply reply;
  const uint32_t now = run.record.plan ? ReplicasOf(run.assignment()) : 0;
  if (now == asked.replicas) {
    reply.set_message(fmt::format("{} trains with {}", id, ReplicaText(now)));
  } else if (now == 0) {
    reply.set_message(fmt::format("{} is planned with {}", id, ReplicaText(asked.replicas)));
  } else if (asked.replicas < now) {
    reply.set_message(fmt::format("{} goes on with {} instead of {} after the step under way", id,
                                  ReplicaText(asked.replicas), now));
  } else {
    reply.set_message(
        fmt::format("{} goes on with {} instead of {} when enough workers are free: each takes {}",
                    id, ReplicaText(asked.replicas), now, StagesOfReplica(run.assignment())));
  }
  return reply;
}

}  // namespace longhaul::coordinator
