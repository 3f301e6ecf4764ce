#include "worker/agent/desk.h"

#include <fmt/core.h>

#include "base/status.h"

namespace longhaul::worker {

Topic TopicOf(const v1::WorkerCommand& command) {
  return {.run = command.run_id(), .epoch = command.epoch(), .stamp = command.stamp()};
}

void SetTopic(const Topic& topic, v1::WorkerMessage* message) {
  message->set_run_id(topic.run);
  message->set_epoch(topic.epoch);
  message->set_stamp(topic.stamp);
}

Meant WhatIsMeant(const Desk& desk, const v1::WorkerCommand& command) {
  const Topic topic = TopicOf(command);
  return {.stage = desk.stage == topic,
          .next = desk.next == topic,
          .probe = desk.probe && desk.probe->topic == topic};
}

NewWork NewWorkOf(const Desk& desk, const v1::WorkerCommand& command) {
  const Topic topic = TopicOf(command);
  // A stage that was told to end makes room for whatever its coordinator wants next, also for the
  // same assignment again.
  if (command.has_assign() && desk.stage && desk.stage->run == topic.run && !desk.stage_leaves) {
    // The coordinator repeats an assignment whose answer it has not heard, for example after its
    // restart.
    if (*desk.stage == topic) return NewWork::kSayReady;
    if (desk.stage->epoch >= topic.epoch) return NewWork::kRefuse;
  }
  if (command.has_measure() && desk.measuring == topic) return NewWork::kUnderWay;
  const bool has_stage = desk.stage && !desk.stage_leaves;
  if (command.has_audit() && (has_stage || desk.audit == command.audit().audit())) {
    return NewWork::kUnderWay;
  }
  if (command.has_probe_link() && desk.probe && desk.probe->topic == topic &&
      desk.probe->number == command.probe_link().probe()) {
    return desk.probe->answered ? NewWork::kSayProbed : NewWork::kUnderWay;
  }
  return NewWork::kBegin;
}

v1::WorkerMessage RefusalOf(const Desk& desk, const v1::WorkerCommand& command) {
  const Topic asked = TopicOf(command);
  v1::WorkerMessage message;
  SetTopic(asked, &message);
  v1::RunError& error = *message.mutable_error();
  error.set_code(static_cast<int32_t>(absl::StatusCode::kAborted));
  error.set_newest_epoch(desk.stage->epoch);
  error.set_message(fmt::format(
      "this worker carries out epoch {} (assignment {:016x}), so it does not begin epoch {} "
      "(assignment {:016x}); a higher epoch is needed",
      desk.stage->epoch, desk.stage->stamp, asked.epoch, asked.stamp));
  return message;
}

}  // namespace longhaul::worker
