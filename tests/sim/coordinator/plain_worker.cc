#include "tests/sim/coordinator/plain_worker.h"

#include <algorithm>
#include <utility>

#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {

v1::Hello PlainWorker::Hello() const {
  v1::Hello hello = HelloOf(name_, std::to_string(incarnation_));
  worker::SayObeyed(obeyed_, &hello);
  if (!stage_ || stage_->leaves) return hello;
  hello.set_run_id(stage_->topic.run);
  hello.set_epoch(stage_->topic.epoch);
  hello.set_stamp(stage_->topic.stamp);
  *hello.mutable_cell() = longhaul::ToProto(stage_->cell);
  return hello;
}

void PlainWorker::Restart() {
  stage_.reset();
  next_.reset();
  outbox_ = worker::ReportOutbox();
  obeyed_ = stored_;
  ++incarnation_;
}

// I5: a worker never obeys a lower term than one that it has obeyed, nor two tenures of a term.
void PlainWorker::CheckObeyed(const v1::WorkerCommand& command) {
  const auto [known, is_new] = tenure_of_.emplace(command.term(), command.tenure());
  if (command.term() < highest_term_) {
    notes_->Violate("I5: {} obeys term {} after term {}", name_, command.term(), highest_term_);
  } else if (!is_new && known->second != command.tenure()) {
    notes_->Violate("I5: {} obeys two leaders of term {}", name_, command.term());
  }
  highest_term_ = std::max(highest_term_, command.term());
}

bool PlainWorker::Handle(const v1::WorkerCommand& command, const std::string& leader) {
  const worker::Obedience obedience = worker::ObedienceTo(obeyed_, command);
  if (obedience == worker::Obedience::kRefuse) {
    notes_->Saw("a worker does not obey");
    notes_->Note("{} does not obey: its leader {}", name_, worker::WhyRefused(obeyed_, command));
    return false;
  }
  obeyed_ = worker::ObeyedAfter(obeyed_, command, leader);
  if (obedience == worker::Obedience::kObeyOnceStored) stored_ = obeyed_;
  CheckObeyed(command);
  const worker::Meant meant = worker::WhatIsMeant(DeskNow(), command);
  switch (command.body_case()) {
    case v1::WorkerCommand::kReject:
      return false;
    case v1::WorkerCommand::kMeasure:
    case v1::WorkerCommand::kAssign:
      HandleWork(command);
      break;
    case v1::WorkerCommand::kStart:
      // It may come before the stage is ready.
      if (meant.stage) stage_->may_start = true;
      StartIfReady();
      break;
    case v1::WorkerCommand::kAbort:
      if (meant.next) next_.reset();
      if (meant.stage) Leave();
      break;
    default:
      break;
  }
  return true;
}

worker::Desk PlainWorker::DeskNow() const {
  worker::Desk desk;
  if (stage_) {
    desk.stage = stage_->topic;
    desk.stage_leaves = stage_->leaves;
  }
  if (next_) desk.next = worker::TopicOf(*next_);
  return desk;
}

void PlainWorker::HandleWork(const v1::WorkerCommand& command) {
  const worker::Desk desk = DeskNow();
  switch (worker::NewWorkOf(desk, command)) {
    case worker::NewWork::kSayReady:
      if (stage_->ready) SayReady();
      return;
    case worker::NewWork::kRefuse:
      notes_->Saw("a worker refuses an epoch");
      notes_->Note("{} refuses epoch {} ({:016x})", name_, command.epoch(), command.stamp());
      outbox_.Push(worker::RefusalOf(desk, command));
      return;
    case worker::NewWork::kUnderWay:
    case worker::NewWork::kSayProbed:
      return;
    case worker::NewWork::kBegin:
      break;
  }
  if (stage_) Leave();
  next_ = command;
  TakeNext();
}

void PlainWorker::Leave() {
  if (std::exchange(stage_->leaves, true)) return;
  stage_->busy_until = notes_->now + random_->Between(absl::ZeroDuration(), absl::Seconds(6));
}

void PlainWorker::TakeNext() {
  if (stage_ || !next_) return;
  const v1::WorkerCommand command = *std::exchange(next_, std::nullopt);
  if (command.has_measure()) {
    v1::WorkerMessage message;
    worker::SetTopic(worker::TopicOf(command), &message);
    *message.mutable_layer_times() = SmallTimes();
    outbox_.Push(std::move(message));
    return;
  }
  Stage& stage = stage_.emplace();
  stage.topic = worker::TopicOf(command);
  stage.assign = command.assign();
  stage.cell = longhaul::FromProto(command.assign().cell());
  stage.step = command.assign().assignment().start_step();
  stage.busy_until = notes_->now + random_->Between(absl::ZeroDuration(), absl::Seconds(2));
  notes_->Note("{} begins epoch {} ({:016x}), {}", name_, stage.topic.epoch, stage.topic.stamp,
               ToString(stage.cell));
}

void PlainWorker::GoOn() {
  if (!stage_ || notes_->now < stage_->busy_until) return;
  if (stage_->leaves) {
    stage_.reset();
    TakeNext();
  } else if (!std::exchange(stage_->ready, true)) {
    SayReady();
    StartIfReady();
  }
}

void PlainWorker::StartIfReady() {
  if (!stage_ || !stage_->may_start || !stage_->ready || stage_->leaves) return;
  if (std::exchange(stage_->started, true)) return;
  v1::WorkerMessage message;
  message.mutable_stage_started();
  Report(std::move(message));
}

void PlainWorker::SayReady() {
  v1::WorkerMessage message;
  message.mutable_stage_ready()->set_start_step(stage_->assign.assignment().start_step());
  Report(std::move(message));
}

void PlainWorker::StepDone(uint64_t step, bool is_last, double loss) {
  stage_->step = step;
  v1::WorkerMessage message;
  v1::StepReport& report = *message.mutable_step();
  report.set_step(step);
  report.set_seconds(0.5);
  report.set_has_norm(!is_last);
  if (!is_last) report.set_gradient_norm(2);
  report.set_has_loss(is_last);
  if (is_last) report.set_loss(loss);
  Report(std::move(message));
}

void PlainWorker::Report(v1::WorkerMessage message) {
  worker::SetTopic(stage_->topic, &message);
  outbox_.Push(std::move(message));
}

}  // namespace longhaul::coordinator::sim
