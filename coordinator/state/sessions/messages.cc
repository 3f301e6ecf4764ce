#include "coordinator/state/sessions/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/state/ledger/epochs.h"
#include "coordinator/state/queries/rights.h"

namespace longhaul::coordinator {

void Messages::On(event::WorkerSaid& said) {
  Worker* worker = ledger_.WorkerOf(said.session);
  if (worker == nullptr) return;
  worker->last_heard = ledger_.now();
  const v1::WorkerMessage& message = said.message;
  switch (message.body_case()) {
    case v1::WorkerMessage::kHello:  // a session has one, which came as WorkerJoined
    case v1::WorkerMessage::BODY_NOT_SET:
      return;
    case v1::WorkerMessage::kHeartbeat:
      worker->memory_used_bytes = message.heartbeat().memory_used_bytes();
      worker->resident = message.heartbeat().resident();
      to_.standstill.NoteAtHand(*worker, message.heartbeat().at_hand());
      return;
    case v1::WorkerMessage::kLog:
      // Lines of an epoch that is over still tell how it ended.
      if (const Run* run = ledger_.FindRun(RunId(message.run_id()));
          run && HoldsCell(*worker, *run)) {
        ledger_.Write(write::WorkerLog{run->record.id, worker->hello.name(), message.log()});
      }
      return;
    case v1::WorkerMessage::kShardsChecked:
      to_.shards.OnChecked(*worker, message);
      return;
    case v1::WorkerMessage::kTrace:
      to_.traces.OnTrace(*worker, message);
      return;
    case v1::WorkerMessage::kReachTried:
      to_.links.OnTried(worker->id, message.reach_tried());
      return;
    case v1::WorkerMessage::kAudited:
      to_.audits.OnReport(*worker, message);
      return;
    case v1::WorkerMessage::kLeaving:
      to_.departures.On(*worker, message.leaving());
      to_.planning.OnLeaving(*worker);
      return;
    default:
      if (message.error().restarts_for() != v1::WORKER_FAULT_NONE)
        to_.health.OnRestart(*worker, message);
      OnRunMessage(*worker, message, said.signature);
  }
}

void Messages::OnRunMessage(Worker& worker, const v1::WorkerMessage& message, Signature signature) {
  const RunId id(message.run_id());
  if (Draft* draft = to_.planning.Find(id)) {
    if (message.epoch() == draft->epoch.value() &&
        Stamp(message.stamp()) == StampOf(ledger_.DraftTag(id, draft->epoch)) &&
        draft->Find(worker.id, worker.incarnation) != nullptr) {
      to_.planning.OnMessage(worker, *draft, message);
      return;
    }
  }
  Run* run = ledger_.FindRun(id);
  if (run == nullptr) return;
  if (message.has_layer_times() && to_.spares.IsSpareOf(worker, *run)) {
    to_.spares.OnTimes(worker, *run, message.layer_times());
    return;
  }
  NoteEpochs(*run, worker, message);
  if (message.epoch() != run->record.epoch.value()) {
    ledger_.DropMessage(*run, worker, message, "the run is at another epoch");
    return;
  }
  // Late answers of measurements: the plan is made.
  if (message.has_layer_times() || message.has_link_probed() || message.error().measuring()) return;
  const bool is_its = run->record.plan && Stamp(message.stamp()) == run->assignment().stamp();
  if (is_its) {
    OnStageMessage(worker, *run, message, signature);
  } else if (!HasEnded(run->record.state)) {
    ledger_.DropMessage(*run, worker, message, "the run's workers have another assignment");
  }
}

void Messages::NoteEpochs(Run& run, const Worker& worker, const v1::WorkerMessage& message) {
  const Epoch newest(std::max(message.epoch(), message.error().newest_epoch()));
  if (NoteEpoch(run, newest)) return;
  ledger_.DropMessage(run, worker, message, fmt::format("there is no epoch {}", newest.value()));
}

void Messages::OnStageMessage(Worker& worker, Run& run, const v1::WorkerMessage& message,
                              Signature signature) {
  StageRecord* stage = ledger_.StageOf(run, worker);
  const RunState state = run.record.state;
  // A checkpoint that ends with its run may be reported behind the last StageFinished.
  const bool late_shard = message.body_case() == v1::WorkerMessage::kShard && stage != nullptr &&
                          stage->HasFinished() &&
                          (state == RunState::kDone || state == RunState::kStopped);
  if (HasEnded(state) && !late_shard) return;  // stragglers of the epoch that just ended
  if (stage == nullptr || (!HasStages(state) && !late_shard)) {
    ledger_.DropMessage(run, worker, message, "it has no stage of this epoch");
    return;
  }
  switch (message.body_case()) {
    case v1::WorkerMessage::kStageReady:
      to_.stages.OnReady(run, *stage, message.stage_ready());
      break;
    case v1::WorkerMessage::kStageStarted:
      if (state != RunState::kPreparing) stage->MovePhase(StageTrigger::kSaidStarted);
      break;
    case v1::WorkerMessage::kStep:
      if (!to_.steps.OnStep(run, *stage, worker, message)) break;
      to_.standstill.NoteProgress(run);
      // The step may have ended the run's epoch.
      if (HasStages(run.record.state) && Epoch(message.epoch()) == run.record.epoch) {
        to_.verification.OnStep(run, *stage, message.step(), signature);
      }
      break;
    case v1::WorkerMessage::kValidation:
      if (stage->is_last) to_.steps.OnValidation(run, message.validation());
      break;
    case v1::WorkerMessage::kShard:
      to_.commits.OnShard(run, *stage, worker, message);
      break;
    case v1::WorkerMessage::kFinished:
      to_.stages.OnFinished(run, *stage, message.finished());
      break;
    case v1::WorkerMessage::kError:
      to_.stages.OnError(run, *stage, message.error());
      break;
    case v1::WorkerMessage::kLink:
      to_.troubles.OnLink(run, *stage, message.link());
      break;
    case v1::WorkerMessage::kFinding:
      to_.verification.OnFinding(run, *stage, message.finding());
      break;
    case v1::WorkerMessage::kRetuned:
      to_.tuning.OnRetuned(run, *stage, message.retuned());
      break;
    case v1::WorkerMessage::kSamples:
      to_.samples.OnReport(run, *stage, message.samples());
      break;
    case v1::WorkerMessage::kLayerTimes:  // a late answer; the plan is made
    case v1::WorkerMessage::kHello:
    case v1::WorkerMessage::kHeartbeat:
    case v1::WorkerMessage::kLog:
    case v1::WorkerMessage::kShardsChecked:
    case v1::WorkerMessage::kTrace:
    case v1::WorkerMessage::kLinkProbed:
    case v1::WorkerMessage::kReachTried:
    case v1::WorkerMessage::kLeaving:
    case v1::WorkerMessage::kAudited:
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
}

}  // namespace longhaul::coordinator
