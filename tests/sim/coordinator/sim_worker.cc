#include "tests/sim/coordinator/sim_worker.h"

#include <algorithm>
#include <utility>

#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr absl::Duration kHeartbeat = absl::Seconds(1);

}  // namespace

SimWorker::SimWorker(size_t index, World* world, Dial dial, size_t coordinators, bool twin)
    : index_(index),
      world_(world),
      dial_(std::move(dial)),
      twin_(twin),
      id_(world->IdOf(index)),
      coordinators_(coordinators) {}

void SimWorker::After(absl::Duration delay, std::function<void()> action) {
  world_->timeline.After(delay, [this, process = incarnation_, action = std::move(action)] {
    if (!running_ || process != incarnation_) return;
    const MonoTime frozen_until = world_->frozen_until[index_];
    const MonoTime now = world_->timeline.now();
    if (frozen_until > now) {
      After(frozen_until - now, action);
    } else {
      action();
    }
  });
}

void SimWorker::Start() {
  if (running_) return;
  running_ = true;
  id_ = world_->IdOf(index_);
  if (twin_) world_->has_twin[index_] = true;
  incarnation_ = ++world_->incarnations[index_];
  world_->timeline.Note("{} starts as incarnation {}{}", id(), incarnation_,
                        twin_ ? ", a twin" : "");
  order_ = worker::DialOrder(coordinators_);
  obeyed_ = world_->obeyed[id_];
  TryDial();
  Heartbeat();
}

void SimWorker::Crash(bool silent) {
  if (!running_) return;
  world_->timeline.Note("{} dies{}", WorkerName(index_), silent ? " with its machine" : "");
  if (run_) LeaveEpoch(/*goodbye=*/false);
  if (connection_) connection_->WorkerDied(silent);
  if (silent && !twin_) disk().LosePower();
  running_ = false;
  leaves_at_.reset();
  connection_.reset();
  std::erase_if(world_->takes, [&](const auto& take) { return take.second.worker == id(); });
  welcomed_ = false;
  outbox_ = worker::ReportOutbox();
  writing_ = false;
  next_.reset();
  measuring_.reset();
  probe_.reset();
  run_.reset();
}

void SimWorker::Leave(absl::Duration limit, absl::Duration away) {
  if (!running_ || twin_ || leaves_at_) return;
  away_ = away;
  if (!connected()) return EndAsLeft();
  world_->timeline.Note("{} is leaving, within {}", WorkerName(index_),
                        absl::FormatDuration(limit));
  leaves_at_ = world_->timeline.now() + limit;
  v1::WorkerMessage message;
  *message.mutable_leaving() = Leaving();
  outbox_.Push(std::move(message));
  Flush();
  After(limit, [this] { EndAsLeft(); });
}

// A worker that is frozen meanwhile ends late, and comes back later by as much.
void SimWorker::EndAsLeft() {
  Crash(/*silent=*/false);
  world_->timeline.After(away_, [this] { Start(); });
}

v1::Leaving SimWorker::Leaving() const {
  v1::Leaving leaving;
  leaving.set_seconds(absl::ToDoubleSeconds(*leaves_at_ - world_->timeline.now()));
  leaving.set_why("it was told to end");
  return leaving;
}

void SimWorker::LoseMachine() {
  Crash(/*silent=*/true);
  world_->timeline.Note("{}'s machine is lost for good", id());
  disk().LoseAll();
  ++world_->machines_lost[index_];
}

void SimWorker::Freeze(absl::Duration length) {
  if (!running_ || world_->frozen_until[index_] > world_->timeline.now()) return;
  world_->timeline.Note("{} is frozen for {}", WorkerName(index_), absl::FormatDuration(length));
  world_->frozen_until[index_] = world_->timeline.now() + length;
}

void SimWorker::CutSession(bool silent) {
  if (!connection_) return;
  world_->timeline.Note("{}'s session is cut{}", WorkerName(index_), silent ? " silently" : "");
  connection_->Cut(silent);
}

void SimWorker::CutSessionOneWay(bool up) {
  if (!connection_) return;
  world_->timeline.Note("{}'s session is cut: nothing {} it any more", WorkerName(index_),
                        up ? "comes from" : "reaches");
  connection_->CutOneWay(up);
}

void SimWorker::DelaySession(absl::Duration delay) {
  if (connection_) connection_->Delay(delay);
}

void SimWorker::Move() {
  if (!running_) return;
  ++world_->moves[index_];
  world_->moved_at[index_] = world_->timeline.now();
  world_->timeline.Note("{} moves to {}", WorkerName(index_), world_->AddressOf(index_));
  if (connection_) {
    connection_->WorkerMoved(world_->random.Between(absl::ZeroDuration(), kHeartbeat));
  }
}

// ---- Session -----------------------------------------------------------------------

void SimWorker::TryDial() {
  outbox_.BeginSession();
  const uint64_t dial = ++dials_;
  heard_ = world_->timeline.now();
  // What arrives at a process that was stopped waits in order.
  connection_ = dial_(index_, at_,
                      {.command =
                           [this, dial](const v1::WorkerCommand& command) {
                             After(absl::ZeroDuration(), [this, dial, command] {
                               if (dial == dials_ && connection_) Handle(command);
                             });
                           },
                       .ended =
                           [this, dial] {
                             After(absl::ZeroDuration(), [this, dial] {
                               if (dial == dials_) SessionEnded();
                             });
                           }});
  if (!connection_) {
    DialAfter({});
    return;
  }
  v1::WorkerMessage hello;
  *hello.mutable_hello() = Hello();
  connection_->Up(std::move(hello));
}

void SimWorker::DialAfter(const worker::SessionEnding& ending) {
  const worker::NextDial next = order_.After(ending);
  if (next.another) at_ = (at_ + 1) % coordinators_;
  // A dial takes time, too.
  After(std::max(next.pause, absl::Milliseconds(20)), [this] { TryDial(); });
}

v1::Hello SimWorker::Hello() const {
  v1::Hello hello = HelloOf(WorkerName(index_), std::to_string(incarnation_));
  hello.set_worker_id(id());
  worker::SayObeyed(obeyed_, &hello);
  if (twin_) hello.clear_devices();
  if (leaves_at_) *hello.mutable_leaving() = Leaving();
  for (v1::DataEndpoint& endpoint : *hello.mutable_endpoints()) {
    endpoint.set_addresses(0, world_->AddressOf(index_));
  }
  if (run_ && !run_->cancelled) {
    hello.set_run_id(run_->key.run);
    hello.set_epoch(run_->key.epoch);
    hello.set_stamp(run_->key.stamp);
    *hello.mutable_cell() = ToProto(run_->cell);
  }
  return hello;
}

void SimWorker::SessionEnded() {
  world_->timeline.Note("{}'s session has ended", WorkerName(index_));
  // A write may have failed on this side and have arrived all the same.
  if (std::exchange(writing_, false) && !world_->random.Chance(0.3)) outbox_.Written();
  connection_.reset();
  const bool welcomed = std::exchange(welcomed_, false);
  DialAfter({.welcomed = welcomed});
}

void SimWorker::HangUp() {
  if (!connection_) return;
  ++dials_;
  connection_->WorkerDied(/*silent=*/false);
  SessionEnded();
}

void SimWorker::Heartbeat() {
  if (connection_ && world_->timeline.now() - heard_ > order_.SilenceLimit()) HangUp();
  if (connected()) {
    v1::WorkerMessage alive;
    alive.mutable_heartbeat();
    connection_->Up(std::move(alive));
  }
  After(kHeartbeat, [this] { Heartbeat(); });
}

void SimWorker::Flush() {
  if (!connected()) return;
  while (outbox_.waiting() > (writing_ ? 1 : 0)) {
    if (writing_) outbox_.Written();
    connection_->Up(*outbox_.Next());
    writing_ = true;
  }
}

bool SimWorker::Obeys(const v1::WorkerCommand& command) {
  const worker::Obedience obedience = worker::ObedienceTo(obeyed_, command);
  if (obedience == worker::Obedience::kRefuse) {
    const std::string why = worker::WhyRefused(obeyed_, command);
    if (coordinators_ == 1) {
      world_->Violate("{} does not obey its coordinator, which {}", WorkerName(index_), why);
    } else {
      world_->timeline.Note("{} does not obey coordinator {}, which {}", WorkerName(index_), at_,
                            why);
      HangUp();
    }
    return false;
  }
  obeyed_ = worker::ObeyedAfter(obeyed_, command, fmt::format("coordinator {}", at_));
  if (obedience == worker::Obedience::kObeyOnceStored) world_->obeyed[id_] = obeyed_;
  return true;
}

void SimWorker::Handle(const v1::WorkerCommand& command) {
  if (!Obeys(command)) return;
  heard_ = world_->timeline.now();
  if (command.has_leader_beat()) return;
  if (command.has_welcome()) {
    welcomed_ = true;
    Flush();
    return;
  }
  world_->timeline.Note("{} gets {} of {}@{}", WorkerName(index_),
                        static_cast<int>(command.body_case()), command.run_id(), command.epoch());
  const worker::Meant meant = worker::WhatIsMeant(DeskNow(), command);
  switch (command.body_case()) {
    case v1::WorkerCommand::kReject:
      Refused(command.reject().reason());
      return;
    case v1::WorkerCommand::kMayLeave:
      if (leaves_at_) After(absl::ZeroDuration(), [this] { EndAsLeft(); });
      return;
    case v1::WorkerCommand::kCheckShards:
      HandleCheckShards(command);
      return;
    case v1::WorkerCommand::kTakeShards:
      GiveUpTakesBefore(command);
      world_->takes[command.take_shards().check()] = {id(), command.run_id(), command.epoch()};
      if (command.take_shards().has_from_folder()) HandleFetch(command);
      return;
    case v1::WorkerCommand::kDropCheckpoint:
      if (world_->dropped) world_->dropped(command.run_id(), command.drop_checkpoint().step());
      disk().EraseOthers(command.run_id(), {command.drop_checkpoint().kept().begin(),
                                            command.drop_checkpoint().kept().end()});
      disk().Erase(command.run_id(), command.drop_checkpoint().step());
      return;
    case v1::WorkerCommand::kAssign:
    case v1::WorkerCommand::kMeasure:
    case v1::WorkerCommand::kProbeLink:
      HandleWork(command);
      return;
    case v1::WorkerCommand::kStart:
      if (meant.stage) HandleStart(command.start());
      return;
    case v1::WorkerCommand::kStop:
      if (meant.stage) run_->stop_requested = true;
      return;
    case v1::WorkerCommand::kRetune:
      if (meant.stage) HandleRetune(command.retune());
      return;
    case v1::WorkerCommand::kTakeSamples:
      if (meant.stage) run_->sample_requests.push_back(command.take_samples().request());
      return;
    case v1::WorkerCommand::kTryReach:
      if (command.try_reach().dial()) HandleTryReach(command.try_reach());
      return;
    case v1::WorkerCommand::kReaddress:
      if (meant.stage) Readdress(command.readdress());
      if (meant.next) next_moves_.push_back(command.readdress());
      return;
    case v1::WorkerCommand::kAbort:
      if (meant.next) next_.reset();
      if (meant.stage) Cancel();
      if (meant.probe) CancelProbe();
      return;
    default:
      return;
  }
}

// As the daemon does.
void SimWorker::GiveUpTakesBefore(const v1::WorkerCommand& command) {
  std::erase_if(world_->takes, [&](const auto& take) {
    return take.second.worker == id() && take.second.run == command.run_id() &&
           take.second.epoch < command.epoch();
  });
}

// It ends. An operator sees that and starts the worker again; a twin was a mistake.
void SimWorker::Refused(const std::string& reason) {
  if (!world_->has_twin[index_]) {
    world_->Violate("{} was refused: {}", WorkerName(index_), reason);
  }
  Crash(/*silent=*/false);
  if (twin_) return;
  const absl::Duration away = world_->random.Between(absl::Seconds(2), absl::Seconds(10));
  world_->Blame(index_, away);
  world_->timeline.After(away, [this] { Start(); });
}

// ---- Agent -------------------------------------------------------------------------

worker::Desk SimWorker::DeskNow() const {
  const auto topic = [](const EpochKey& key) {
    return worker::Topic{.run = key.run, .epoch = key.epoch, .stamp = key.stamp};
  };
  worker::Desk desk;
  if (run_) {
    desk.stage = topic(run_->key);
    desk.stage_leaves = run_->cancelled;
  }
  if (next_) desk.next = worker::TopicOf(*next_);
  if (measuring_) desk.measuring = topic(*measuring_);
  if (probe_) {
    desk.probe = {.topic = worker::TopicOf(probe_->command),
                  .number = probe_->command.probe_link().probe(),
                  .answered = probe_->answer.has_value()};
  }
  return desk;
}

// Everybody reaches everybody here; who cannot is the unit tests'.
void SimWorker::HandleTryReach(const v1::TryReach& ask) {
  const absl::Duration takes = world_->random.Between(absl::Milliseconds(1), absl::Seconds(5));
  After(takes, [this, ask] {
    v1::WorkerMessage message;
    message.mutable_reach_tried()->set_check(ask.check());
    for (int i = 0; i < ask.addresses_size(); ++i) message.mutable_reach_tried()->add_problems("");
    Say({}, std::move(message));
  });
}

void SimWorker::HandleWork(const v1::WorkerCommand& command) {
  const worker::Desk desk = DeskNow();
  switch (worker::NewWorkOf(desk, command)) {
    case worker::NewWork::kBegin:
      break;
    case worker::NewWork::kUnderWay:
      return;
    case worker::NewWork::kSayReady:
      if (run_->ready) SayReady();
      return;
    case worker::NewWork::kSayProbed:
      Say(KeyOf(command), *probe_->answer);
      return;
    case worker::NewWork::kRefuse:
      outbox_.Push(worker::RefusalOf(desk, command));
      Flush();
      return;
  }
  if (command.has_assign()) GiveUpTakesBefore(command);
  if (command.has_probe_link()) CheckProbe(command);
  if (run_) Cancel();
  CancelProbe();
  next_ = command;
  next_moves_.clear();
  TakeNext();
}

void SimWorker::TakeNext() {
  if (run_ || measuring_ || IsProbing() || !next_) return;
  const v1::WorkerCommand command = *std::exchange(next_, std::nullopt);
  if (command.has_assign()) {
    BeginRun(command);
    return;
  }
  if (command.has_probe_link()) {
    BeginProbe(command);
    return;
  }
  measuring_ = KeyOf(command);
  const bool slow = world_->random.Chance(world_->faults.slow);
  const absl::Duration takes =
      world_->random.Between(absl::Milliseconds(50), absl::Seconds(slow ? 60 : 2));
  if (slow) world_->Blame(index_, takes);
  After(takes, [this, command] { Measured(command); });
}

void SimWorker::Measured(const v1::WorkerCommand& command) {
  measuring_.reset();
  v1::WorkerMessage message;
  if (world_->random.Chance(world_->faults.error)) {
    world_->Blame(index_);
    message.mutable_error()->set_message("no memory left to measure in");
    message.mutable_error()->set_measuring(true);
  } else {
    *message.mutable_layer_times() = SmallTimes();
  }
  Say(KeyOf(command), std::move(message));
  TakeNext();
}

void SimWorker::Cancel() {
  if (std::exchange(run_->cancelled, true)) return;
  // The thread may be in the middle of something.
  if (!run_->failed && !run_->deaf) {
    AfterInRun(world_->random.Between(absl::Milliseconds(1), absl::Seconds(2)),
               [this] { EndRun(); });
  }
}

void SimWorker::Say(const EpochKey& key, v1::WorkerMessage message) {
  message.set_run_id(key.run);
  message.set_epoch(key.epoch);
  message.set_stamp(key.stamp);
  outbox_.Push(std::move(message));
  Flush();
}

std::string SimWorker::Describe() const {
  if (!running_) return "down";
  return fmt::format(
      "{}, {}", connected() ? "connected" : "away",
      run_ ? fmt::format("{}@{} {} step {}{}", run_->key.run, run_->key.epoch, ToString(run_->cell),
                         run_->step, run_->finished ? " finished" : "")
           : std::string(measuring_ ? "measuring" : "free"));
}

}  // namespace longhaul::coordinator::sim
