// `longhaul trace`: the book puts together what every stage did when; here they are asked and the
// user is answered.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "coordinator/state/core.h"

namespace longhaul::coordinator {

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
  if (const Status may = traces_.MayBegin(); !may.ok()) {
    refuse(may);
    return;
  }
  std::vector<CellId> cells;
  std::vector<const Worker*> workers;
  for (const StageRecord& stage : run->stages) {
    const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker == nullptr) {
      refuse(absl::UnavailableError(
          fmt::format("{} is not connected, and a trace needs every stage", Label(stage))));
      return;
    }
    cells.push_back(stage.id);
    workers.push_back(worker);
  }
  const RunRecord& record = run->record;
  const uint64_t id = traces_.Begin(asked.request, record.id, record.epoch, cells, now_);
  for (const Worker* worker : workers) {
    v1::WorkerCommand command = CommandFor(record.id, record.epoch);
    command.mutable_send_trace()->set_request(id);
    command.mutable_send_trace()->set_steps(asked.steps);
    Send(*worker, std::move(command));
  }
}

void Core::OnTrace(const Worker& worker, const v1::WorkerMessage& message) {
  const uint64_t id = message.trace().request();
  const Trace* trace = traces_.Find(id);
  if (trace == nullptr) return;  // given up
  Run* run = FindRun(trace->run);
  if (run == nullptr || !run->record.plan || message.run_id() != trace->run.value() ||
      message.epoch() != trace->epoch.value()) {
    return;
  }
  // By who says it: a worker that has forgotten the run does not know its stage.
  const StageRecord* stage = StageOf(*run, worker);
  if (stage == nullptr) return;
  if (message.trace().steps().empty()) {
    EndTrace(id, absl::FailedPreconditionError(fmt::format(
                     "{} has no finished step of run {} to show: trace a run after its first step, "
                     "and before its workers begin another one",
                     Label(*stage), trace->run.value())));
    return;
  }
  if (!traces_.Answer(id, stage->id, message.trace())) return;
  Trace whole = traces_.Take(id);
  const RequestId request = whole.request;
  out_.commands.emplace_back(
      command::ReplyTrace{request, std::move(whole).Reply(*run->record.plan)});
}

void Core::EndTrace(uint64_t id, const Status& why) {
  out_.commands.emplace_back(command::ReplyTrace{traces_.Take(id).request, why});
}

void Core::CheckTraces() {
  for (const uint64_t id : traces_.Late(now_)) {
    const Trace& trace = *traces_.Find(id);
    const Run* run = FindRun(trace.run);
    std::string missing;
    for (const CellId& cell : trace.Missing()) {
      const StageRecord* stage = run == nullptr ? nullptr : run->Find(cell);
      if (stage == nullptr) continue;
      missing += (missing.empty() ? "" : ", ") + Label(*stage);
    }
    EndTrace(id,
             absl::DeadlineExceededError(fmt::format("no trace came from {} within {:g} s", missing,
                                                     absl::ToDoubleSeconds(kTraceLimit))));
  }
}

}  // namespace longhaul::coordinator
