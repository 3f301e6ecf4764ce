// The part of Checkers that judges what goes out: commands to workers and answers to users.
#include <algorithm>

#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/books/step_book.h"
#include "coordinator/state/ledger/manifests.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/sim/coordinator/checkers.h"

namespace longhaul::coordinator::sim {

void Checkers::Executes(const Command& command) {
  if (const auto* to = std::get_if<command::ToWorker>(&command)) {
    CheckWorkerCommand(*to);
  } else if (const auto* close = std::get_if<command::CloseSession>(&command)) {
    recovery_.Left(close->session);
  } else if (const auto* submit = std::get_if<command::Reply<v1::SubmitReply>>(&command)) {
    Answered(submit->request);
    if (submit->reply.ok()) ToldAccepted(*submit->reply);
  } else if (const auto* plan = std::get_if<command::Reply<v1::PlanReply>>(&command)) {
    Answered(plan->request);
  } else if (const auto* stop = std::get_if<command::Reply<v1::StopReply>>(&command)) {
    Answered(stop->request);
    CheckReply(*stop);
  } else if (const auto* replicas = std::get_if<command::Reply<v1::ReplicasReply>>(&command)) {
    Answered(replicas->request);
  } else if (const auto* hook = std::get_if<command::RunHook>(&command)) {
    CheckHook(*hook);
  } else if (const auto* trim = std::get_if<command::TrimFolder>(&command)) {
    CheckTrim(*trim);
  } else if (const auto* garbage = std::get_if<command::CollectGarbage>(&command)) {
    Answered(garbage->request);
    CheckGarbage(*garbage);
  }
}

void Checkers::CheckHook(const command::RunHook& hook) {
  if (!hooks_.insert(hook.run).second) {
    world_->Violate("hook: that of {} begins twice", hook.run.value());
  }
  for (const v1::CheckpointFile& file : hook.files) {
    if (world_->copies.contains(file.sha256()) || world_->copies_harmed.contains(file.sha256())) {
      continue;
    }
    world_->Violate("hook: {} of step {} of {} never came to the coordinator", file.name(),
                    hook.step, hook.run.value());
  }
}

void Checkers::CheckTrim(const command::TrimFolder& trim) {
  const auto found = records_.find(trim.run);
  if (found == records_.end()) return;
  for (const v1::CheckpointManifest& manifest : found->second.checkpoints) {
    const uint64_t step = manifest.step();
    const bool goes =
        trim.dropped.contains(step) ||
        (!trim.kept.empty() && step < *trim.kept.rbegin() && !trim.kept.contains(step));
    if (goes && IsStored(manifest)) {
      world_->Violate("trim: checkpoint {} of {} is deleted from {} and offered there", step,
                      trim.run.value(), trim.address);
    }
  }
}

// Garbage collection keeps every blob that a run names, and every copy expected for it.
void Checkers::CheckGarbage(const command::CollectGarbage& garbage) {
  // A run may have been resumed in the same tick.
  if (garbage.keep_steps < kKeptSteps) {
    world_->Violate("garbage: {} steps are kept, and a run compares with more", garbage.keep_steps);
  }
  for (const auto& [id, record] : records_) {
    // One that was submitted behind it, in the same tick: its files were claimed just before.
    if (record.epoch.value() == 0 && !record.data) continue;
    for (const v1::DataFile& file : record.data_files) {
      if (!garbage.named.contains(file.sha256())) {
        world_->Violate("garbage: a data file of {} is not named", id.value());
      }
    }
    if (record.data && !garbage.named.contains(record.data->token_file_sha256)) {
      world_->Violate("garbage: the tokens of {} are not named", id.value());
    }
    for (const v1::CheckpointManifest& manifest : record.checkpoints) {
      for (const v1::CheckpointFile& file : manifest.files()) {
        if (IsCopied(file) && !garbage.copies.contains(file.sha256())) {
          world_->Violate("garbage: a copy of checkpoint {} of {} is not named", manifest.step(),
                          id.value());
        }
      }
    }
  }
}

// A command stands on a row of the store: this coordinator's next process must know of it.
void Checkers::CheckWorkerCommand(const command::ToWorker& to) {
  const v1::WorkerCommand& command = to.message;
  const auto live = live_.find(to.session);
  if (live == live_.end()) return;  // it left in this very tick
  const auto found = records_.find(RunId(command.run_id()));
  const auto because = [&](bool justified, std::string_view what) {
    if (justified) return;
    world_->Violate("{} of {}@{} went to {}, which nothing stored justifies", what,
                    command.run_id(), command.epoch(), live->second);
  };
  if ((command.has_measure() || command.has_probe_link()) &&
      command.run_id().starts_with("plan-")) {
    return;
  }
  if (command.has_welcome()) CheckWelcome(live->second);
  // An event of no run.
  if (command.has_welcome() || command.has_reject() || command.has_try_reach() ||
      command.has_may_leave()) {
    return;
  }
  if (command.has_abort()) {
    CheckAbort(command, live->second);
    return;
  }
  if (found == records_.end() || found->second.epoch.value() < command.epoch()) {
    because(false, "a command");
    return;
  }
  const RunRecord& record = found->second;
  // Moved on in this very tick.
  if (record.epoch.value() > command.epoch() || moved_on_.contains(record.id)) return;
  if (command.has_assign()) {
    CheckReadSoFar(record, FromProto(command.assign().assignment()));
    const Cell* const cell =
        record.plan ? record.plan->assignment.Find(FromProto(command.assign().cell())) : nullptr;
    because(cell != nullptr && record.plan->assignment.epoch.value() == command.epoch() &&
                cell->incarnation.value() == live->second,
            "an assignment");
  } else if (command.has_start()) {
    because(record.state != RunState::kPlanning && record.state != RunState::kPreparing, "a start");
  } else if (command.has_stop()) {
    because(record.state == RunState::kFinishing || record.state == RunState::kRecovering ||
                HasEnded(record.state),
            "a stop");
  } else if (command.has_drop_checkpoint()) {
    const auto& kept = record.checkpoints;
    because(std::none_of(
                kept.begin(), kept.end(),
                [&](const auto& one) { return one.step() == command.drop_checkpoint().step(); }),
            "the end of a checkpoint");
  }
}

// Two processes with one identity would throw each other out for ever.
void Checkers::CheckWelcome(const std::string& incarnation) {
  std::vector<std::string>& known = welcomed_[id_of_.at(incarnation)];
  if (std::ranges::find(known, incarnation) == known.end()) {
    known.push_back(incarnation);
  } else if (known.back() != incarnation) {
    world_->Violate("{} is welcome, and {} has taken its place before", incarnation, known.back());
  }
}

void Checkers::CheckAbort(const v1::WorkerCommand& command, const std::string& incarnation) {
  const auto found = records_.find(RunId(command.run_id()));
  if (found == records_.end()) return;
  const RunRecord& record = found->second;
  if (record.epoch.value() != command.epoch() || !HoldsStages(record.state)) return;
  for (const Cell& cell : record.plan->assignment.cells) {
    if (cell.incarnation.value() == incarnation) {
      world_->Violate("{} was told to drop {}@{}, which goes on", incarnation, command.run_id(),
                      command.epoch());
    }
  }
}

void Checkers::CheckReply(const command::Reply<v1::StopReply>& stop) {
  const auto asked = stops_.extract(stop.request);
  if (!stop.reply.ok() || asked.empty() || stop.reply->stored().repeated()) return;
  // The reply says which of the runs of a name it means.
  const std::string& message = stop.reply->message();
  const size_t words = message.find(" ends after the step");
  if (words == std::string::npos) return;
  const auto record = records_.find(RunId(message.substr(0, words)));
  if (record == records_.end()) {
    world_->Violate("a reply says that a run ends which is not stored: {}", message);
    return;
  }
  stops_told_.insert({record->first.value(), record->second.epoch.value()});
}

void Checkers::ToldAccepted(const v1::SubmitReply& reply) {
  const auto record = records_.find(RunId(reply.run_id()));
  if (record == records_.end()) {
    world_->Violate("{} was accepted and is not stored", reply.run_id());
  }
}

void Checkers::Answered(RequestId request) {
  resumes_.erase(request);
  if (open_.erase(request) == 0) {
    world_->Violate("request {} is answered twice, or was never asked", request.value());
  }
}

}  // namespace longhaul::coordinator::sim
