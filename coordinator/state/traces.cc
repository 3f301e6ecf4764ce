// `longhaul trace`: what every stage did when, asked of the workers and put together.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/core.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kTraceLimit = absl::Seconds(10);
constexpr size_t kMostTraces = 4;  // at once
// What one reply may have, with room for the plan.
constexpr size_t kMostBytes = 3 << 20;

// Fewer steps, the oldest first, until it fits; the last one is kept.
void Trim(v1::TraceReply* reply) {
  while (reply->ByteSizeLong() > kMostBytes) {
    bool less = false;
    for (v1::StageTrace& stage : *reply->mutable_stages()) {
      if (stage.steps_size() < 2) continue;
      stage.mutable_steps()->DeleteSubrange(0, 1);
      less = true;
    }
    if (!less) return;
  }
}

}  // namespace

void Core::On(event::TraceAsked& asked) {
  const auto refuse = [&](const Status& status) {
    out_.commands.emplace_back(command::ReplyTrace{asked.request, status});
  };
  const Run* run = FindRunByText(asked.run);
  if (run == nullptr) {
    refuse(absl::NotFoundError(
        fmt::format("there is no run '{}'; `longhaul ps` lists the runs", asked.run)));
    return;
  }
  if (!run->record.plan || run->stages.empty() || run->draft) {
    refuse(absl::FailedPreconditionError(fmt::format(
        "run {} has not begun to train; there is nothing to trace", run->record.id.value())));
    return;
  }
  if (traces_.size() >= kMostTraces) {
    refuse(absl::ResourceExhaustedError(fmt::format(
        "{} traces are being put together already; try again in a few seconds", traces_.size())));
    return;
  }
  const uint64_t id = next_trace_++;
  TraceJob job{.request = asked.request,
               .run = run->record.id,
               .epoch = run->record.epoch,
               .until = now_ + kTraceLimit};
  job.stages.resize(run->stages.size());
  for (const StageRecord& stage : run->stages) {
    const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker == nullptr) {
      refuse(absl::UnavailableError(
          fmt::format("{} is not connected, and a trace needs every stage", Label(stage))));
      return;
    }
    v1::WorkerCommand command = CommandFor(job.run, job.epoch);
    command.mutable_send_trace()->set_request(id);
    command.mutable_send_trace()->set_steps(asked.steps);
    Send(*worker, std::move(command));
  }
  traces_.emplace(id, std::move(job));
}

void Core::OnTrace(const Worker& worker, const v1::WorkerMessage& message) {
  const auto it = traces_.find(message.trace().request());
  if (it == traces_.end()) return;  // given up
  TraceJob& job = it->second;
  Run* run = FindRun(job.run);
  if (run == nullptr || message.run_id() != job.run.value() ||
      message.epoch() != job.epoch.value()) {
    return;
  }
  // By who says it: a worker that has forgotten the run does not know its stage.
  const StageRecord* stage = StageOf(*run, worker);
  if (stage == nullptr || stage->index >= job.stages.size()) return;
  if (message.trace().steps().empty()) {
    EndTrace(it->first,
             absl::FailedPreconditionError(fmt::format(
                 "{} has no finished step of run {} to show: trace a run after its first step, "
                 "and before its workers begin another one",
                 Label(*stage), job.run.value())));
    return;
  }
  job.stages[stage->index] = message.trace();
  if (!std::all_of(job.stages.begin(), job.stages.end(),
                   [](const auto& one) { return one.has_value(); })) {
    return;
  }
  v1::TraceReply reply;
  reply.set_run_id(job.run.value());
  uint32_t index = 0;
  for (auto& one : job.stages) {
    one->set_stage(index++);
    *reply.add_stages() = *std::move(one);
  }
  if (run->record.plan) *reply.mutable_plan() = *run->record.plan;
  Trim(&reply);
  EndTrace(it->first, std::move(reply));
}

void Core::EndTrace(uint64_t id, StatusOr<v1::TraceReply> reply) {
  const auto it = traces_.find(id);
  out_.commands.emplace_back(command::ReplyTrace{it->second.request, std::move(reply)});
  traces_.erase(it);
}

void Core::CheckTraces() {
  std::vector<uint64_t> late;
  for (const auto& [id, job] : traces_) {
    if (now_ >= job.until) late.push_back(id);
  }
  for (const uint64_t id : late) {
    const TraceJob& job = traces_.at(id);
    const Run* run = FindRun(job.run);
    std::string missing;
    for (size_t stage = 0; stage < job.stages.size(); ++stage) {
      if (job.stages[stage] || run == nullptr || stage >= run->stages.size()) continue;
      missing += (missing.empty() ? "" : ", ") + Label(run->stages[stage]);
    }
    EndTrace(id,
             absl::DeadlineExceededError(fmt::format("no trace came from {} within {:g} s", missing,
                                                     absl::ToDoubleSeconds(kTraceLimit))));
  }
}

}  // namespace longhaul::coordinator
