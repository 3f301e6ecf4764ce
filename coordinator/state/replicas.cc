// Replicas come and go between steps. There is one way for all reasons, a loss, a return and a
// user's wish: the run stops where a set of its state is whole, and its next epoch has another
// number of replicas (crew.cc, planner/resize.h). After a loss that is the newest set that there
// is; else one that it writes for this, after the step under way.
#include "coordinator/planner/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "coordinator/planner/codec_choice.h"
#include "coordinator/planner/resize.h"
#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

std::string Replicas(uint32_t count) {
  return count == 1 ? "1 replica" : fmt::format("{} replicas", count);
}

}  // namespace

uint64_t MicrobatchesAt(const RunRecord& record, uint64_t step) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(record, step);
  if (manifest != nullptr && manifest->has_microbatches()) return manifest->microbatches();
  return step * record.spec.MicrobatchesPerStep();
}

uint64_t MicrobatchesAt(const Run& run, uint64_t step) {
  const Assignment& assignment = run.assignment();
  const RunSpec& spec = run.record.spec;
  const uint64_t before =
      assignment.microbatches_before.value_or(assignment.start_step * spec.MicrobatchesPerStep());
  return before + (step - assignment.start_step) * spec.train.microbatches * ReplicasOf(assignment);
}

uint32_t Core::ReplicasMissing(const Run& run) const {
  if (!run.record.plan) return 0;
  const uint32_t wanted = run.record.ReplicasWanted(), now = ReplicasOf(run.assignment());
  return wanted > now ? wanted - now : 0;
}

size_t Core::SparesWanted(const Run& run) const {
  size_t wanted = run.record.spec.recovery.spares;
  if (run.record.plan) wanted += size_t{ReplicasMissing(run)} * StagesOfReplica(run.assignment());
  return wanted;
}

std::string Core::WhyFewerReplicas(const Run& run) const {
  const uint32_t missing = ReplicasMissing(run);
  if (missing == 0) return "";
  const size_t stages = StagesOfReplica(run.assignment());
  size_t have = 0;
  for (const Worker* worker : connected_) {
    if (IsSpareOf(*worker, run)) ++have;
  }
  return fmt::format("{} of {} train; another one needs {} free workers, {} {} reserved",
                     ReplicasOf(run.assignment()), Replicas(run.record.ReplicasWanted()), stages,
                     have, have == 1 ? "is" : "are");
}

// Where all stages are there to hear of it, and have trained since they began.
void Core::AdvanceReplicas() {
  for (Run* run : RunsInOrder()) {
    const RunRecord& record = run->record;
    if (record.state != RunState::kRunning) continue;
    const uint32_t now = ReplicasOf(run->assignment()), wanted = record.ReplicasWanted();
    const bool is_time = now != wanted && record.step > run->assignment().start_step &&
                         record.step + 1 < record.spec.train.steps;
    const bool all_hear = std::ranges::all_of(
        run->stages, [](const StageRecord& stage) { return stage.attached && stage.started; });
    if (!is_time || !all_hear || run->suspicion || run->nonfinite) continue;
    uint32_t next = wanted;
    if (wanted > now) {
      if (SparesOf(*run).size() < StagesOfReplica(run->assignment())) continue;
      const Crew crew = CrewOf(*run);
      next = static_cast<uint32_t>(crew.size() / StagesOfReplica(run->assignment()));
      if (next <= now || !IsWhole(crew) || !AreWarm(*run, crew)) continue;
    }
    run->record.resize_asked = true;
    Move(*run, Trigger::kEndAsked, "",
         fmt::format("stops after the step under way, with a checkpoint, and goes on from there "
                     "with {} instead of {}",
                     Replicas(next), now));
  }
}

// All others wait for the newcomers, so these have loaded and timed what they need before that.
bool Core::AreWarm(const Run& run, const Crew& crew) const {
  return std::ranges::all_of(crew, [&](const Worker* worker) {
    return run.record.spec.replay || worker->layers || !IsSpareOf(*worker, run);
  });
}

// Every stage has stopped after `step`, and the set of that step is committed.
void Core::Resize(Run& run, uint64_t step) {
  NoteProgress(run);
  run.recovery = {.since = now_,
                  .not_before = now_,
                  .until = now_ + run.record.spec.reattach_timeout,
                  .move_failure = {}};
  ForgetEpoch(run);
  Move(run, Trigger::kResized,
       fmt::format("stopped after step {} for another number of replicas", step));
}

void Core::LogReplicas(const Run& run, uint32_t before, const std::string& away) {
  const uint32_t now = ReplicasOf(run.assignment());
  if (now == before) return;
  const uint64_t step = run.assignment().start_step;
  Log(&run, "replicas",
      fmt::format("{} of {} from step {} on, {} before{}: a step reads {} microbatches instead of "
                  "{}, from microbatch {} on; losses are not those of an unbroken run",
                  now, Replicas(run.record.ReplicasWanted()), step + 1, before,
                  away.empty() ? std::string() : fmt::format(" ({} away)", away),
                  uint64_t{now} * run.record.spec.train.microbatches,
                  uint64_t{before} * run.record.spec.train.microbatches,
                  MicrobatchesAt(run, step)));
}

void Core::SettleReplicas(Run& run, uint32_t chosen) {
  RunSpec& spec = run.record.spec;
  if (!spec.replicas.count_auto) return;
  const ReplicasSpec before = spec.replicas;
  spec = spec.WithChosenReplicas(chosen);
  const bool forms_are_lost =
      spec.replicas.gradients != before.gradients || spec.replicas.parameters != before.parameters;
  Log(&run, "note",
      fmt::format("pipeline.replicas: the plan chose {}, so train.microbatches are {} of each{}",
                  chosen, spec.train.microbatches,
                  forms_are_lost ? "; one replica sends no gradients, so pipeline.gradients and "
                                   "pipeline.parameters say nothing any more"
                                 : ""));
}

// Later plans keep them, so that a run loses by its codecs what it did before.
void Core::SettleCodecs(Run& run, const Assignment& assignment) {
  LinksSpec& links = run.record.spec.links;
  if (!links.HasAutoCodecs()) return;
  std::vector<std::vector<CodecPair>> chosen = CodecsOf(assignment);
  const bool none_before = links.chosen.empty();
  const bool are_kept = chosen.empty() || links.ChosenOf(0, chosen.front().size()) != nullptr;
  links.chosen = std::move(chosen);
  if (are_kept) return;
  Log(&run, "note",
      fmt::format("links: the plan chose codecs{}",
                  none_before ? "" : " anew, because boundaries are others than before"));
}

void Core::On(event::ReplicasAsked& asked) {
  out_.commands.emplace_back(command::ReplyReplicas{asked.request, SetReplicas(asked)});
}

StatusOr<v1::ReplicasReply> Core::SetReplicas(const event::ReplicasAsked& asked) {
  const Run* found = FindRunByText(asked.run);
  if (found == nullptr) {
    return absl::NotFoundError(
        fmt::format("there is no run '{}'; `longhaul ps` lists the runs", asked.run));
  }
  Run& run = *FindRun(found->record.id);
  const std::string& id = run.record.id.value();
  if (HasEnded(run.record.state)) {
    return absl::FailedPreconditionError(
        fmt::format("{} has ended ({}); set pipeline.replicas in its run file and resume it", id,
                    ToString(run.record.state)));
  }
  const RunSpec& spec = run.record.spec;
  if (spec.replicas.count_auto) {
    return absl::FailedPreconditionError(fmt::format(
        "{} leaves the number of its replicas to its first plan (pipeline.replicas auto), which is "
        "not made yet; wait until it trains, or stop it and submit it with a number",
        id));
  }
  if (spec.replicas.trains_apart()) {
    return absl::FailedPreconditionError(fmt::format(
        "{} trains its replicas apart (pipeline.gradients local-sgd), and in this version these "
        "keep their number, because each has an optimizer of its own",
        id));
  }
  const auto parsed = ParseRunSpec(ToYaml(spec.WithReplicas(asked.replicas)), id, {},
                                   [](std::string_view) { return absl::OkStatus(); });
  if (!parsed.ok()) return parsed.status();
  run.record.replicas_wanted = asked.replicas;
  Store(run);
  const std::string sentence =
      fmt::format("{} wanted by `longhaul replicas`", Replicas(asked.replicas));
  Log(&run, "replicas", sentence);
  if (run.record.plan && HasStages(run.record.state)) ReleaseSparesBeyond(run, SparesWanted(run));
  v1::ReplicasReply reply;
  const uint32_t now = run.record.plan ? ReplicasOf(run.assignment()) : 0;
  if (now == asked.replicas) {
    reply.set_message(fmt::format("{} trains with {}", id, Replicas(now)));
  } else if (now == 0) {
    reply.set_message(fmt::format("{} is planned with {}", id, Replicas(asked.replicas)));
  } else if (asked.replicas < now) {
    reply.set_message(fmt::format("{} goes on with {} instead of {} after the step under way", id,
                                  Replicas(asked.replicas), now));
  } else {
    reply.set_message(
        fmt::format("{} goes on with {} instead of {} when enough workers are free: each takes {}",
                    id, Replicas(asked.replicas), now, StagesOfReplica(run.assignment())));
  }
  return reply;
}

}  // namespace longhaul::coordinator
