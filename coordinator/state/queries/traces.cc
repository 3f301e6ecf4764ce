#include "coordinator/state/queries/traces.h"

#include <utility>
#include <vector>

namespace longhaul::coordinator {

void Traces::On(event::TraceAsked& asked) {
  const Status begun = Begin(asked);
  if (!begun.ok()) ledger_.Do(command::Reply<v1::TraceReply>{asked.request, begun});
}

Status Traces::Begin(const event::TraceAsked& asked) {
  LH_ASSIGN_OR_RETURN(const Run* const run, ledger_.RunCalled(asked.run));
  const RunRecord& record = run->record;
  if (!record.plan || run->stages.empty() || record.state == RunState::kPlanning) {
    return FailedPrecondition("run {} has not begun to train; there is nothing to trace",
                              record.id.value());
  }
  LH_RETURN_IF_ERROR(book_.MayBegin());
  std::vector<CellId> cells;
  std::vector<const Worker*> workers;
  for (const StageRecord& stage : run->stages) {
    const Worker* worker = ledger_.LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker == nullptr) {
      return Unavailable("{} is not connected, and a trace needs every stage",
                         ledger_.Label(stage));
    }
    cells.push_back(stage.id);
    workers.push_back(worker);
  }
  const uint64_t id = book_.Begin(asked.request, record.id, record.epoch, cells, ledger_.now());
  for (const Worker* worker : workers) {
    v1::WorkerCommand command = ledger_.CommandFor(record.id, record.epoch);
    command.mutable_send_trace()->set_request(id);
    command.mutable_send_trace()->set_steps(asked.steps);
    ledger_.Send(*worker, std::move(command));
  }
  return absl::OkStatus();
}

void Traces::OnTrace(const Worker& worker, const v1::WorkerMessage& message) {
  const uint64_t id = message.trace().request();
  const Trace* trace = book_.Find(id);
  if (trace == nullptr) return;  // given up
  Run* run = ledger_.FindRun(trace->run);
  if (run == nullptr || !run->record.plan || message.run_id() != trace->run.value() ||
      message.epoch() != trace->epoch.value()) {
    return;
  }
  // By who says it: a worker that has forgotten the run does not know its stage.
  const StageRecord* stage = ledger_.StageOf(*run, worker);
  if (stage == nullptr) return;
  if (message.trace().steps().empty()) {
    End(id, FailedPrecondition(
                "{} has no finished step of run {} to show: trace a run after its first step, "
                "and before its workers begin another one",
                ledger_.Label(*stage), trace->run.value()));
    return;
  }
  if (!book_.Answer(id, stage->id, message.trace())) return;
  Trace whole = book_.Take(id);
  const RequestId request = whole.request;
  ledger_.Do(command::Reply<v1::TraceReply>{request, std::move(whole).Reply(*run->record.plan)});
}

void Traces::End(uint64_t id, const Status& why) {
  ledger_.Do(command::Reply<v1::TraceReply>{book_.Take(id).request, why});
}

void Traces::CheckTimers() {
  for (const uint64_t id : book_.Late(ledger_.now())) {
    const Trace& trace = *book_.Find(id);
    const Run* run = ledger_.FindRun(trace.run);
    std::string missing;
    for (const CellId& cell : trace.Missing()) {
      const StageRecord* stage = run == nullptr ? nullptr : run->Find(cell);
      if (stage == nullptr) continue;
      missing += (missing.empty() ? "" : ", ") + ledger_.Label(*stage);
    }
    End(id, DeadlineExceeded("no trace came from {} within {:g} s", missing,
                             absl::ToDoubleSeconds(kTraceLimit)));
  }
}

}  // namespace longhaul::coordinator
