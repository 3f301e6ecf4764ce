#include "worker/agent/agent.h"

#include <fmt/core.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/device_lost.h"
#include "base/file.h"
#include "base/log.h"
#include "base/peer_log.h"
#include "base/units.h"
#include "run/file/run_spec.h"
#include "run/plan/proto/plan_proto.h"
#include "worker/measuring/model_timing.h"
#include "worker/pipeline/boundary_messages.h"

namespace longhaul::worker {
namespace {

Topic TopicOf(const EpochRun& run) {
  return {.run = run.run().value(), .epoch = run.epoch().value(), .stamp = run.stamp().value()};
}

}  // namespace

Agent::Agent(const Resources& resources)
    : resources_(resources),
      reach_checks_(resources.transports, resources.send),
      thread_([this] { Loop(); }) {}

Agent::~Agent() {
  Shutdown();
}

void Agent::Shutdown() {
  reach_checks_.Shutdown();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (run_) run_->Cancel("the worker is shutting down");
    if (probe_) probe_->Cancel();
    if (audit_) audit_->Cancel("the worker is shutting down");
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Desk Agent::DeskNow() const {
  Desk desk;
  if (run_) {
    desk.stage = TopicOf(*run_);
    desk.stage_leaves = run_leaves_;
  }
  if (next_) desk.next = TopicOf(*next_);
  if (measure_) desk.measuring = TopicOf(*measure_);
  if (audit_) desk.audit = audit_->number();
  if (next_ && next_->has_audit()) desk.audit = next_->audit().audit();
  if (probe_) {
    desk.probe = {.topic = TopicOf(probe_->command()),
                  .number = probe_->command().probe_link().probe(),
                  .answered = probed_.has_value()};
  }
  return desk;
}

void Agent::Handle(v1::WorkerCommand command) {
  // Deleted here, as the agent's own thread may be training for hours.
  if (command.has_drop_checkpoint()) {
    const RunId run(command.run_id());
    const v1::DropCheckpoint& drop = command.drop_checkpoint();
    if (drop.removed()) {
      BoundaryMessages::Drop(resources_.messages_root, run);
      BoundaryMessages::Drop(resources_.evidence_root, run);
      const Status status = resources_.shards->DropRun(run);
      if (!status.ok()) LogWarning("cannot delete a run's checkpoints: {}", Message(status));
      return;
    }
    std::set<Step> kept;
    for (const uint64_t step : drop.kept()) kept.insert(Step(step));
    Status status = resources_.shards->DropOthers(run, kept);
    if (drop.step() > 0) status.Update(resources_.shards->Drop(run, Step(drop.step())));
    if (!status.ok()) LogWarning("cannot delete an old checkpoint: {}", Message(status));
    return;
  }
  if (command.take_shards().has_from_folder() || command.check_shards().has_to_folder()) {
    if (resources_.folders != nullptr) resources_.folders->Handle(std::move(command));
    return;
  }
  if (command.has_take_shards() || command.check_shards().has_to()) {
    resources_.transfers->Handle(std::move(command));
    return;
  }
  if (command.has_check_shards()) {
    resources_.courier->Add(std::move(command));
    return;
  }
  if (command.has_send_trace()) {
    SendTrace(command);
    return;
  }
  if (command.has_keep_evidence()) {
    KeepEvidence(command);
    return;
  }
  if (command.has_try_reach()) {
    reach_checks_.Handle(command);
    return;
  }
  if (!HandleHere(std::move(command))) {
    // Without mutex_: logging asks for the current run, which takes it.
    LogAboutPeer(LogLevel::kWarn, "coordinator",
                 "a command that this version does not know was left out");
  }
}

bool Agent::HandleHere(v1::WorkerCommand command) {
  const std::lock_guard lock(mutex_);
  const Meant meant = WhatIsMeant(DeskNow(), command);
  switch (command.body_case()) {
    case v1::WorkerCommand::kMeasure:
    case v1::WorkerCommand::kProbeLink:
    case v1::WorkerCommand::kAudit:
    case v1::WorkerCommand::kAssign:
      HandleWork(std::move(command));
      return true;
    case v1::WorkerCommand::kStart:
      if (meant.stage) run_->Start();
      return true;
    case v1::WorkerCommand::kStop:
      if (meant.stage) run_->RequestStop();
      return true;
    case v1::WorkerCommand::kRetune:
      if (meant.stage) run_->RequestRetune(command.retune());
      return true;
    case v1::WorkerCommand::kTakeSamples:
      if (meant.stage) run_->RequestSamples(command.take_samples());
      return true;
    case v1::WorkerCommand::kReaddress:
      if (meant.stage) run_->Readdress(command.readdress());
      // The assignment may still wait behind other work: its run gets the new address when it
      // begins.
      if (meant.next) next_moves_.push_back(command.readdress());
      return true;
    case v1::WorkerCommand::kAbort:
      if (meant.next) next_.reset();
      if (meant.stage) {
        run_leaves_ = true;
        run_->Cancel(command.abort().reason(), command.abort().finished());
      }
      if (meant.probe) probe_->Cancel();
      return true;
    default:
      return false;
  }
}

void Agent::HandleWork(v1::WorkerCommand command) {
  const Desk desk = DeskNow();
  switch (NewWorkOf(desk, command)) {
    case NewWork::kBegin:
      break;
    case NewWork::kUnderWay:
      return;
    case NewWork::kSayReady:
      return run_->SayReady();
    case NewWork::kSayProbed:
      return resources_.send(*probed_);
    case NewWork::kRefuse:
      return resources_.send(RefusalOf(desk, command));
  }
  if (command.has_assign()) {
    // Before the epoch reads its checkpoint: an older transfer must not replace its files.
    resources_.transfers->EpochBegins(RunId(command.run_id()), Epoch(command.epoch()));
    if (resources_.folders != nullptr) {
      resources_.folders->EpochBegins(RunId(command.run_id()), Epoch(command.epoch()));
    }
  }
  if (run_) {
    run_leaves_ = true;
    run_->Cancel("the coordinator has other work");
  }
  if (probe_) probe_->Cancel();
  if (audit_) audit_->Cancel("the coordinator has other work");
  next_ = std::move(command);
  next_moves_.clear();
  changed_.notify_all();
}

void Agent::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto wanted = [this] { return closing_ || next_; };
    if (resident_) {
      changed_.wait_until(lock, resident_until_.ToChrono(), wanted);
    } else {
      changed_.wait(lock, wanted);
    }
    if (closing_) {
      DropResident(lock, "the worker is shutting down");
      return;
    }
    if (resident_ && !next_ && Now() >= resident_until_) {
      DropResident(lock, fmt::format("nobody has asked for it for {}",
                                     longhaul::FormatDuration(resources_.resident_limit)));
      continue;
    }
    if (!next_) continue;
    const v1::WorkerCommand command = std::move(*next_);
    next_.reset();
    if (command.has_measure()) {
      measure_ = command;
      lock.unlock();
      Measure(command);
      lock.lock();
      continue;
    }
    if (command.has_probe_link()) {
      const auto probe = probe_ = std::make_shared<LinkProbe>(command);
      probed_.reset();
      lock.unlock();
      Probe(probe);
      lock.lock();
      continue;
    }
    if (command.has_audit()) {
      DropResident(lock, "an audit needs its memory");
      const auto audit = audit_ = std::make_shared<AuditRun>(resources_, command);
      lock.unlock();
      v1::WorkerMessage answer = audit->Run();
      if (resources_.rehearsal) resources_.rehearsal->OnAudit(answer.mutable_audited());
      lock.lock();
      audit_.reset();
      lock.unlock();
      resources_.send(std::move(answer));
      lock.lock();
      continue;
    }
    // The run owns the model from here on, so heartbeats must not offer it any more.
    resident_said_.Clear();
    auto run = std::make_shared<EpochRun>(resources_, command.assign(), std::move(resident_));
    for (const v1::Readdress& moved : std::exchange(next_moves_, {})) run->Readdress(moved);
    // Set before the lock is released, so that Start and Abort find the run.
    run_ = run;
    run_leaves_ = false;
    traced_ = {TopicOf(*run), run->cell(), run->trace()};
    lock.unlock();
    run->Run();
    std::unique_ptr<ResidentStage> resident = run->TakeResident();
    lock.lock();
    run_.reset();
    KeepResident(std::move(resident));
    lock.unlock();  // the end of links and message files takes a while
    run.reset();
    lock.lock();
  }
}

void Agent::KeepResident(std::unique_ptr<ResidentStage> resident) {
  resident_ = std::move(resident);
  if (!resident_) return;
  resident_until_ = Now() + resources_.resident_limit;
  const ResidentIdentity& identity = resident_->identity();
  resident_said_.set_run_id(identity.run.value());
  resident_said_.set_first_layer(identity.options.first_layer);
  resident_said_.set_layers(identity.options.layers);
  resident_said_.set_step(resident_->model().steps());
  resident_said_.set_memory_bytes(resident_->memory_bytes());
}

void Agent::DropResident(std::unique_lock<std::mutex>& lock, const std::string& why) {
  if (!resident_) return;
  resident_said_.Clear();
  std::unique_ptr<ResidentStage> resident = std::move(resident_);
  lock.unlock();  // to free much memory takes a while
  LogInfo("run {}: the model that was kept is dropped: {}", resident->identity().run.value(), why);
  resident.reset();
  lock.lock();
}

void Agent::SendTrace(const v1::WorkerCommand& command) {
  Traced traced;
  {
    const std::lock_guard lock(mutex_);
    if (traced_.topic == TopicOf(command)) traced = traced_;
  }
  v1::WorkerMessage message;
  SetTopic(TopicOf(command), &message);
  v1::StageTrace& trace = *message.mutable_trace();
  if (traced.log) trace = traced.log->Take(command.send_trace().steps());
  *trace.mutable_cell() = ToProto(traced.cell);
  trace.set_request(command.send_trace().request());
  resources_.send(std::move(message));
}

void Agent::KeepEvidence(const v1::WorkerCommand& command) {
  if (resources_.kept_messages == nullptr) return;
  const v1::KeepEvidence& wanted = command.keep_evidence();
  if (const Status is_name = CheckFileName("a run's id", command.run_id()); !is_name.ok()) return;
  const std::string folder = resources_.evidence_root + "/" + command.run_id();
  const StatusOr<uint32_t> written = resources_.kept_messages->Write(
      RunId(command.run_id()), Step(wanted.step()), EdgeId(wanted.edge()), folder);
  if (!written.ok()) {
    LogWarning("run {}: evidence about step {} is not written: {}", command.run_id(), wanted.step(),
               Message(written.status()));
  } else {
    LogInfo("run {}: {} messages of step {} over edge {} are evidence, in {}", command.run_id(),
            *written, wanted.step(), wanted.edge(), folder);
  }
}

void Agent::Measure(const v1::WorkerCommand& command) {
  v1::WorkerMessage message;
  SetTopic(TopicOf(command), &message);
  const StatusOr<v1::LayerTimes> times = TimesOf(command);
  const bool lost = cuda::IsDeviceLost(times.status());
  if (times.ok()) {
    *message.mutable_layer_times() = *times;
  } else {
    message.mutable_error()->set_message(std::string(Message(times.status())));
    message.mutable_error()->set_code(static_cast<int32_t>(times.status().code()));
    message.mutable_error()->set_measuring(true);
    if (lost) message.mutable_error()->set_restarts_for(v1::WORKER_FAULT_DEVICE_LOST);
  }
  {
    // Before the answer is sent: if the answer is lost, the coordinator repeats Measure, which must
    // then measure again.
    const std::lock_guard lock(mutex_);
    measure_.reset();
  }
  resources_.send(std::move(message));
  if (lost && resources_.restart) {
    resources_.restart(
        {v1::WORKER_FAULT_DEVICE_LOST, fmt::format("lost its GPU: {}", Message(times.status()))});
  }
}

void Agent::Probe(const std::shared_ptr<LinkProbe>& probe) {
  v1::WorkerMessage message = probe->Run(resources_.transports);
  {
    // Kept, because a repeated ProbeLink gets the same answer.
    const std::lock_guard lock(mutex_);
    probed_ = message;
  }
  resources_.send(std::move(message));
}

StatusOr<v1::LayerTimes> Agent::TimesOf(const v1::WorkerCommand& command) {
  const v1::Measure& measure = command.measure();
  LH_ASSIGN_OR_RETURN(const RunSpec spec, ParseRunSpec(measure.run_yaml(), "run.yaml", {}));
  const auto time_layers = [&] {
    return MeasureModel(spec, measure.vocabulary(), resources_.devices, resources_.make_stage,
                        resources_.python_codecs);
  };
  // A run that is planned anew goes on with the model that is kept for it, unless the layers to be
  // timed find no room beside it.
  const bool own = resident_ && resident_->identity().run == RunId(command.run_id());
  std::unique_lock lock(mutex_);
  if (!own) DropResident(lock, "another run needs its memory");
  lock.unlock();
  StatusOr<v1::LayerTimes> times = time_layers();
  if (times.ok() || !absl::IsResourceExhausted(times.status()) || !own) return times;
  lock.lock();
  DropResident(lock, "there is no room beside it to time the model's layers");
  lock.unlock();
  return time_layers();
}

void Agent::FillHello(v1::Hello* hello) const {
  const std::lock_guard lock(mutex_);
  if (!resident_said_.run_id().empty()) *hello->mutable_resident() = resident_said_;
  // A stage that was told to end is none that a coordinator can go on with.
  if (!run_ || run_leaves_) return;
  hello->set_run_id(run_->run().value());
  hello->set_epoch(run_->epoch().value());
  hello->set_stamp(run_->stamp().value());
  *hello->mutable_cell() = ToProto(run_->cell());
}

void Agent::FillHeartbeat(v1::Heartbeat* heartbeat) const {
  const std::lock_guard lock(mutex_);
  if (!resident_said_.run_id().empty()) *heartbeat->mutable_resident() = resident_said_;
  if (run_) run_->FillAtHand(heartbeat);
}

std::optional<StageReading> Agent::Reading() const {
  const std::lock_guard lock(mutex_);
  return run_ ? std::optional(run_->Reading()) : std::nullopt;
}

std::optional<Topic> Agent::CurrentRun() const {
  const std::lock_guard lock(mutex_);
  return run_ ? std::optional(TopicOf(*run_)) : std::nullopt;
}

}  // namespace longhaul::worker
