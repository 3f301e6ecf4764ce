// Workers come, speak, go, and come back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// 5: assignments are graphs of cells.
constexpr uint32_t kProtocolMin = 8, kProtocolMax = 8;
constexpr size_t kMaxHelloText = 256;
// Workers that left are listed until this many of them are known.
constexpr size_t kMaxGoneWorkers = 256;
constexpr absl::Duration kClockTolerance = absl::Minutes(1);
constexpr size_t kMaxReplaced = 16;

bool IsPlainText(const std::string& text) {
  return !text.empty() && text.size() <= kMaxHelloText &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

// What a draft waits for.
std::string_view WhatIsUnderWay(const Draft& draft) {
  if (draft.plan) return "shards of the checkpoint were on their way";
  if (draft.computation) return "the plan was made";
  if (draft.probes.HasBegun()) return "its layers and links were timed";
  if (!std::ranges::all_of(draft.workers, [](const auto& one) { return one.times.has_value(); })) {
    return "its layers were timed";
  }
  if (!draft.data) return "the text was prepared";
  return draft.awaits_reach ? "workers tried to reach each other" : "the checkpoint was checked";
}

// Why the process before the one that says this hello is gone.
std::string WhyStartedAnew(const v1::Hello& hello) {
  if (hello.restarted_for() == v1::WORKER_FAULT_NONE) return "it was started anew";
  return fmt::format("it restarted itself: it {}", Quoted(hello.restart_cause()));
}

}  // namespace

std::optional<std::string> Core::RefusalOf(const v1::Hello& hello) const {
  if (hello.protocol_min() > kProtocolMax || hello.protocol_max() < kProtocolMin ||
      hello.protocol_min() > hello.protocol_max()) {
    return fmt::format(
        "this coordinator (version {}) speaks protocol versions {} to {}, worker {} (version {}) "
        "speaks {} to {}; install the same version on both",
        options_.version, kProtocolMin, kProtocolMax, hello.name(), hello.version(),
        hello.protocol_min(), hello.protocol_max());
  }
  if (!IsPlainText(hello.worker_id()) || !IsPlainText(hello.incarnation()) ||
      !IsPlainText(hello.name())) {
    return fmt::format(
        "a worker's hello needs an id, an incarnation and a name of 1 to {} printable characters "
        "without spaces; it came with '{}', '{}' and '{}'",
        kMaxHelloText, hello.worker_id(), hello.incarnation(), hello.name());
  }
  return std::nullopt;
}

void Core::On(event::WorkerJoined& joined) {
  if (sessions_.contains(joined.session)) return;  // said twice
  const v1::Hello& hello = joined.hello;
  if (const std::optional<std::string> refusal = RefusalOf(hello)) {
    Refuse(joined.session, *refusal);
    return;
  }
  const WorkerId id(hello.worker_id());
  const Incarnation incarnation(hello.incarnation());
  Worker& worker = workers_[id];
  if (std::ranges::find(worker.replaced, incarnation) != worker.replaced.end()) {
    RefuseTwin(worker, joined);
    return;
  }
  const bool replaces = worker.session && worker.incarnation == incarnation;
  if (worker.incarnation != incarnation && hello.restarted_for() == v1::WORKER_FAULT_DEVICE_LOST) {
    NoteFault(nullptr, id, worker.incarnation, HealthBook::Fault::kDeviceLost);
  }
  if (worker.session) {
    out_.commands.emplace_back(
        command::CloseSession{*worker.session, "a newer session of this worker took its place"});
    if (replaces) {
      connected_.erase(&worker);
      sessions_.erase(*worker.session);
      worker.session.reset();
    } else {
      Lose(worker, WhyStartedAnew(hello), /*for_good=*/true);
    }
  }
  const bool is_new = worker.incarnation != incarnation;
  // Also where its session had ended: it may come back.
  if (is_new && !worker.incarnation.value().empty()) {
    worker.replaced.push_back(worker.incarnation);
    if (worker.replaced.size() > kMaxReplaced) worker.replaced.pop_front();
  }
  const bool is_elsewhere =
      is_new || FromProto(worker.hello.endpoints()) != FromProto(hello.endpoints());
  if (is_elsewhere) {
    links_.Forget(id);
    reach_.Forget(id);
    // A plan in the making knows where it was, and how fast its links were there.
    if (Draft* draft = worker.held ? FindDraft(*worker.held) : nullptr) {
      DropPlan(*draft);
      draft->probes.Restart();
      draft->survey = LinkSurvey();
    }
  }
  if (is_new) {
    worker.layers.reset();
    worker.restarts = false;
    worker.at_hand.Clear();
  }
  worker.id = id;
  worker.incarnation = incarnation;
  worker.hello = hello;
  worker.resident = hello.resident();
  worker.session = joined.session;
  ++worker.sessions;
  worker.times_for.reset();
  worker.last_heard = now_;
  sessions_[joined.session] = id;
  connected_.insert(&worker);
  ForgetOldWorkers();

  v1::WorkerCommand command;
  v1::Welcome& welcome = *command.mutable_welcome();
  welcome.set_protocol(std::min(hello.protocol_max(), kProtocolMax));
  welcome.set_coordinator_version(options_.version);
  welcome.set_heartbeat_seconds(absl::ToDoubleSeconds(options_.heartbeat_interval));
  Send(worker, std::move(command));
  ++sequence_;
  Log(nullptr, "worker",
      fmt::format("worker {} {}{}", Label(worker), replaces ? "opened a new session" : "joined",
                  hello.host().empty() ? "" : " from " + hello.host()));
  NoteClock(worker, is_new);
  Attach(worker);
  CheckReach(worker);
}

void Core::NoteClock(Worker& worker, bool is_new) {
  worker.clock_ahead = worker.hello.unix_ms() == 0 ? absl::ZeroDuration()
                                                   : absl::Milliseconds(worker.hello.unix_ms()) -
                                                         absl::Milliseconds(unix_ms_);
  if (!is_new || absl::AbsDuration(worker.clock_ahead) < kClockTolerance) return;
  Log(nullptr, "worker",
      fmt::format("the clock of worker {} is {} {} the coordinator's; training does not depend on "
                  "it, but the times of its log lines are wrong by that; set the clocks (NTP)",
                  Label(worker), longhaul::FormatDuration(absl::AbsDuration(worker.clock_ahead)),
                  worker.clock_ahead > absl::ZeroDuration() ? "ahead of" : "behind"));
}

// A worker that was started anew does not come back as what it was before. Who does is another
// process with the same identity, which has gone on all the while: each would throw the other out.
void Core::RefuseTwin(const Worker& worker, const event::WorkerJoined& joined) {
  const std::string refusal = fmt::format(
      "two workers have the identity {}: this one{} and worker {}{}, which is newer. Each needs a "
      "--state-dir of its own; where one was copied, delete worker-id in it",
      worker.id.value(), joined.hello.host().empty() ? "" : " on " + joined.hello.host(),
      Label(worker), worker.hello.host().empty() ? "" : " on " + worker.hello.host());
  Refuse(joined.session, refusal);
}

void Core::Refuse(SessionId session, const std::string& refusal) {
  v1::WorkerCommand command;
  command.mutable_reject()->set_reason(refusal);
  command.mutable_reject()->set_fatal(true);
  out_.commands.emplace_back(command::ToWorker{session, std::move(command)});
  out_.commands.emplace_back(command::CloseSession{session, refusal});
  Log(nullptr, "worker", "a worker was refused: " + refusal);
}

// Finds what this incarnation is reserved for and repeats what it may have missed.
void Core::Attach(Worker& worker) {
  const v1::Hello hello = worker.hello;
  const RunId said(hello.run_id());
  bool matches = hello.run_id().empty();
  Run* stage_of = nullptr;
  for (Run* run : RunsInOrder()) {
    // A recovering run reserves its workers itself, at the end of the tick (recovery.cc).
    if (!IsActive(run->record.state) || run->record.state == RunState::kRecovering) continue;
    if (run->draft) {
      if (run->draft->Find(worker.id, worker.incarnation) != nullptr) {
        matches = matches || (said == run->record.id && hello.epoch() == run->record.epoch.value());
        AttachToDraft(worker, *run->draft);
      }
      continue;
    }
    if (StageRecord* stage = StageOf(*run, worker)) {
      stage_of = run;
      const bool same = said == run->record.id && hello.epoch() == run->record.epoch.value() &&
                        FromProto(hello.cell()) == stage->id;
      matches = matches || same;
      continue;
    }
    for (StageRecord& stage : run->stages) {
      if (stage.worker != worker.id || stage.finished) continue;
      OnStageLost(*run, stage, WhyStartedAnew(hello));
      break;
    }
  }
  for (auto& [id, job] : jobs_) {
    if (job.draft.Find(worker.id, worker.incarnation) == nullptr) continue;
    matches = matches || said == id;
    AttachToDraft(worker, job.draft);
  }
  if (!matches) {
    SendAbort(worker, said, Epoch(hello.epoch()),
              "the coordinator knows this run as ended, or at another epoch, or not at all");
    worker.hello.clear_run_id();
  }
  if (stage_of != nullptr) AttachToStage(worker, *stage_of, *StageOf(*stage_of, worker));
  RepeatChecks(worker);
}

void Core::AttachToDraft(Worker& worker, Draft& draft) {
  worker.held = draft.run;
  if (!draft.Find(worker.id, worker.incarnation)->times)
    SendMeasure(worker, draft.run, draft.epoch, draft.spec);
  RepeatProbes(worker, draft);
}

void Core::AttachToStage(Worker& worker, Run& run, StageRecord& stage) {
  worker.held = run.record.id;
  Reattach(run, stage);
  const bool has_it = !worker.hello.run_id().empty();
  NoteAddresses(worker, run, stage);
  if (run.record.state == RunState::kPreparing) {
    if (!has_it) stage.ready = false;
    if (!stage.ready) SendAssign(worker, run, stage);
    BeginIfAllReady(run);
  } else if (!stage.finished && !has_it) {
    // A stage that has finished is kept until the run has ended, so this one failed. Its error may
    // be right behind.
    if (!run.suspicion) {
      run.suspicion = {
          fmt::format(
              "{} came back without its stage{}", Label(stage),
              run.record.step > 0 ? fmt::format(" after step {}", run.record.step) : std::string()),
          now_ + kCausePatience};
    }
  } else if (!stage.finished) {
    if (!stage.started) SendStart(worker, run);
    SendRetune(worker, run, stage);
    const bool stops = run.record.stop_asked || run.record.resize_asked;
    if (stops && stage.is_first) SendStop(run);
  }
}

void Core::NoteAddresses(const Worker& worker, Run& run, const StageRecord& stage) {
  Cell& cell = run.record.plan->assignment.cells[stage.place];
  std::vector<Endpoint> said = FromProto(worker.hello.endpoints());
  const bool has_moved = cell.endpoints != said;
  if (has_moved) {
    cell.endpoints = std::move(said);
    Store(run);
    std::string where;
    for (const Endpoint& endpoint : cell.endpoints) {
      if (endpoint.addresses.empty()) continue;
      where += fmt::format("{}{} {}", where.empty() ? "" : ", ", endpoint.transport,
                           fmt::join(endpoint.addresses, " "));
    }
    Log(&run, "worker", fmt::format("{} has moved: {}", Label(stage), Quoted(where)));
  }
  for (const Edge& edge : run.assignment().edges) {
    // Where it dials itself: what it may have missed while it was away.
    if (edge.dialler() == stage.id || (has_moved && edge.dialled() == stage.id)) {
      SendReaddress(run, edge);
    }
  }
}

void Core::SendReaddress(const Run& run, const Edge& edge) {
  const StageRecord& dialler = *run.Find(edge.dialler());
  const Worker* worker = LiveWorkerOf(dialler.worker, dialler.incarnation);
  const Endpoint* endpoint = run.assignment().Find(edge.dialled())->EndpointOf(edge.transport);
  if (worker == nullptr || endpoint == nullptr || endpoint->addresses.empty()) return;
  v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
  command.mutable_readdress()->set_edge(edge.id.value());
  for (const std::string& address : endpoint->addresses) {
    command.mutable_readdress()->add_addresses(address);
  }
  Send(*worker, std::move(command));
}

void Core::On(event::WorkerLeft& left) {
  if (Worker* worker = WorkerOf(left.session)) Lose(*worker, left.why, left.for_good);
}

void Core::Lose(Worker& worker, const std::string& why, bool for_good) {
  faults_.Add(FaultKind::kSessionLost);
  Log(nullptr, "worker", fmt::format("worker {} left: {}", Label(worker), why));
  ++sequence_;
  const std::string label = Label(worker);
  connected_.erase(&worker);
  sessions_.erase(*worker.session);
  worker.session.reset();
  reach_.Leave(worker.id);
  const std::optional<RunId> held = std::exchange(worker.held, std::nullopt);
  Run* run = held ? FindRun(*held) : nullptr;
  if (const Draft* draft = held ? FindDraft(*held) : nullptr) {
    InterruptDraft(
        *held, fmt::format("worker {} was lost while {}: {}", label, WhatIsUnderWay(*draft), why));
  } else if (StageRecord* stage = run == nullptr ? nullptr : StageOf(*run, worker);
             stage != nullptr && HasStages(run->record.state)) {
    if (for_good) {
      OnStageLost(*run, *stage, why);
    } else {
      Detach(*run, *stage, why);
    }
  }
  LoseChecks(worker, why);
}

void Core::ForgetOldWorkers() {
  const auto gone = [](const auto& entry) { return !entry.second.session; };
  if (static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), gone)) <=
      kMaxGoneWorkers) {
    return;
  }
  auto oldest = workers_.end();
  for (auto it = workers_.begin(); it != workers_.end(); ++it) {
    if (!gone(*it)) continue;
    if (oldest == workers_.end() || it->second.last_heard < oldest->second.last_heard) oldest = it;
  }
  links_.Forget(oldest->first);
  reach_.Forget(oldest->first);
  health_.Forget(oldest->first);
  workers_.erase(oldest);
}

void Core::On(event::WorkerSaid& said) {
  Worker* worker = WorkerOf(said.session);
  if (worker == nullptr) return;
  worker->last_heard = now_;
  const v1::WorkerMessage& message = said.message;
  switch (message.body_case()) {
    case v1::WorkerMessage::kHello:  // a session has one, which came as WorkerJoined
    case v1::WorkerMessage::BODY_NOT_SET:
      return;
    case v1::WorkerMessage::kHeartbeat:
      worker->memory_used_bytes = message.heartbeat().memory_used_bytes();
      worker->resident = message.heartbeat().resident();
      NoteAtHand(*worker, message.heartbeat().at_hand());
      return;
    case v1::WorkerMessage::kLog:
      // Lines of an epoch that is over still tell how it ended.
      if (const Run* run = FindRun(RunId(message.run_id())); run && HoldsCell(*worker, *run)) {
        out_.writes.emplace_back(
            write::WorkerLog{run->record.id, worker->hello.name(), message.log()});
      }
      return;
    case v1::WorkerMessage::kShardsChecked:
      // About files, whatever the run does meanwhile.
      OnShardsChecked(*worker, message);
      return;
    case v1::WorkerMessage::kTrace:
      // Of a run that may have ended.
      OnTrace(*worker, message);
      return;
    case v1::WorkerMessage::kReachTried:
      Carry(reach_.Answer(worker->id, message.reach_tried(), now_));
      return;
    default:
      if (message.error().restarts_for() != v1::WORKER_FAULT_NONE) OnRestart(*worker, message);
      OnRunMessage(*worker, message);
  }
}

void Core::OnRunMessage(Worker& worker, const v1::WorkerMessage& message) {
  const RunId id(message.run_id());
  if (Draft* draft = FindDraft(id)) {
    if (message.epoch() == draft->epoch.value() &&
        draft->Find(worker.id, worker.incarnation) != nullptr) {
      OnDraftMessage(worker, *draft, message);
      return;
    }
  }
  Run* run = FindRun(id);
  if (run == nullptr) return;
  if (message.has_layer_times() && IsSpareOf(worker, *run)) {
    OnSpareTimes(worker, *run, message.layer_times());
    return;
  }
  if (message.epoch() != run->record.epoch.value()) {
    DropMessage(*run, worker, message, "the run is at another epoch");
  } else {
    OnStageMessage(worker, *run, message);
  }
}

void Core::OnStageMessage(Worker& worker, Run& run, const v1::WorkerMessage& message) {
  StageRecord* stage = StageOf(run, worker);
  const RunState state = run.record.state;
  // A checkpoint that ends with its run may be reported behind the last StageFinished.
  const bool late_shard = message.body_case() == v1::WorkerMessage::kShard && stage != nullptr &&
                          stage->finished &&
                          (state == RunState::kDone || state == RunState::kStopped);
  if (HasEnded(state) && !late_shard) return;  // stragglers of the epoch that just ended
  if (stage == nullptr || (!HasStages(state) && !late_shard)) {
    DropMessage(run, worker, message, "it has no stage of this epoch");
    return;
  }
  switch (message.body_case()) {
    case v1::WorkerMessage::kStageReady:
      OnReady(run, *stage, message.stage_ready());
      break;
    case v1::WorkerMessage::kStageStarted:
      stage->started = stage->started || state != RunState::kPreparing;
      break;
    case v1::WorkerMessage::kStep:
      OnStep(run, *stage, worker, message);
      break;
    case v1::WorkerMessage::kValidation:
      if (stage->is_last) OnValidation(run, message.validation());
      break;
    case v1::WorkerMessage::kShard:
      OnShard(run, *stage, worker, message);
      break;
    case v1::WorkerMessage::kFinished:
      OnFinished(run, *stage, message.finished());
      break;
    case v1::WorkerMessage::kError:
      if (message.error().measuring()) break;  // as of kLayerTimes
      OnError(run, *stage, message.error());
      break;
    case v1::WorkerMessage::kLink:
      OnLink(run, *stage, message.link());
      break;
    case v1::WorkerMessage::kRetuned:
      OnRetuned(run, *stage, message.retuned());
      break;
    case v1::WorkerMessage::kLayerTimes:  // a late answer; the plan is made
    case v1::WorkerMessage::kHello:
    case v1::WorkerMessage::kHeartbeat:
    case v1::WorkerMessage::kLog:
    case v1::WorkerMessage::kShardsChecked:
    case v1::WorkerMessage::kTrace:
    case v1::WorkerMessage::kLinkProbed:
    case v1::WorkerMessage::kReachTried:
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
}

void Core::DropMessage(Run& run, const Worker& worker, const v1::WorkerMessage& message,
                       std::string_view why) {
  if (++run.dropped > 1) return;
  Log(&run, "note",
      fmt::format("dropped a message of epoch {} from worker {}: {} (epoch {}); more of its kind "
                  "are counted",
                  message.epoch(), Label(worker), why, run.record.epoch.value()));
}

}  // namespace longhaul::coordinator
