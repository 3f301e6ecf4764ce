#include "tests/sim/coordinator/sim_worker.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr uint64_t kSteps = 20, kCheckpointEvery = 4;

}  // namespace

RunSpec SimSpec(const std::string& name, uint32_t stages) {
  RunSpec spec = SmallSpec(name, stages);
  spec.train.steps = kSteps;
  spec.checkpoint.every = kCheckpointEvery;
  return spec;
}

v1::Hello SimWorker::Hello() const {
  v1::Hello hello = HelloOf(name_, std::to_string(incarnation_));
  if (assigned_) {
    hello.set_run_id(assigned_->key.run);
    hello.set_epoch(assigned_->key.epoch);
    hello.set_stage(assigned_->stage);
  }
  return hello;
}

void SimWorker::Crash() {
  DropEpoch();
  outbox.clear();
  ++incarnation_;
}

void SimWorker::DropEpoch() {
  if (!assigned_) return;
  world_->epochs[assigned_->key].step.erase(assigned_->stage);
  assigned_.reset();
}

void SimWorker::Say(const EpochKey& key, v1::WorkerMessage message) {
  message.set_run_id(key.run);
  message.set_epoch(key.epoch);
  outbox.push_back(std::move(message));
}

void SimWorker::SayError(const std::string& text, std::optional<uint32_t> lost_peer) {
  v1::WorkerMessage message;
  message.mutable_error()->set_message(text);
  message.mutable_error()->set_stage(assigned_->stage);
  message.mutable_error()->set_peer_lost(lost_peer.has_value());
  message.mutable_error()->set_peer_stage(lost_peer.value_or(0));
  Say(assigned_->key, std::move(message));
}

void SimWorker::Receive(const v1::WorkerCommand& command) {
  const EpochKey key{command.run_id(), command.epoch()};
  const bool mine = assigned_ && assigned_->key == key;
  switch (command.body_case()) {
    case v1::WorkerCommand::kMeasure: {
      if (mine) return;
      v1::WorkerMessage message;
      *message.mutable_layer_times() = SmallTimes();
      Say(key, std::move(message));
      return;
    }
    case v1::WorkerCommand::kAssign:
      Assign(key, command.assign());
      return;
    case v1::WorkerCommand::kStart:
      if (!mine || assigned_->started) return;
      assigned_->started = true;
      {
        v1::WorkerMessage message;
        message.mutable_stage_started();
        Say(key, std::move(message));
      }
      return;
    case v1::WorkerCommand::kStop:
      if (mine && assigned_->stage == 0) {
        EpochTruth& truth = world_->epochs[key];
        if (!truth.stop_at) truth.stop_at = truth.step[0] + 1;
      }
      return;
    case v1::WorkerCommand::kAbort:
      if (mine) DropEpoch();
      return;
    case v1::WorkerCommand::kDropCheckpoint:
      std::erase_if(world_->shards, [&](const auto& shard) {
        return std::get<0>(shard) == key.run && std::get<3>(shard) == "id-" + name_ &&
               std::get<1>(shard) == command.drop_checkpoint().step();
      });
      return;
    default:
      return;
  }
}

void SimWorker::Assign(const EpochKey& key, const v1::Assign& assign) {
  v1::WorkerMessage ready;
  ready.mutable_stage_ready()->set_start_step(assign.plan().start_step());
  if (assigned_ && assigned_->key == key) {  // said twice
    if (!assigned_->started) Say(key, std::move(ready));
    return;
  }
  if (assigned_ && assigned_->key.run == key.run && assigned_->key.epoch > key.epoch) return;
  if (assign.plan().stages(static_cast<int>(assign.stage())).incarnation() !=
      Hello().incarnation()) {
    return;  // meant for another process
  }
  const EpochTruth& known = world_->epochs[key];
  if (known.finished.contains(assign.stage())) return;  // late: this stage of it is over
  DropEpoch();
  for (const v1::CheckpointFile& file : assign.resume_files()) {
    if (world_->shards.contains(
            {key.run, assign.plan().start_step(), file.stage(), file.worker_id()})) {
      continue;
    }
    world_->violations.push_back(
        fmt::format("run {} resumes from step {}, whose shard of stage {} is "
                    "not on {}'s disk",
                    key.run, assign.plan().start_step(), file.stage(), file.worker_id()));
  }
  if (assign.plan().start_step() > 0 && assign.resume_files().empty()) {
    world_->violations.push_back("a resumed stage got no files");
  }
  Assigned assigned;
  assigned.key = key;
  assigned.stage = assign.stage();
  assigned.plan = assign.plan();
  assigned_ = std::move(assigned);
  EpochTruth& truth = world_->epochs[key];
  truth.stages = static_cast<uint32_t>(assign.plan().stages_size());
  truth.step[assign.stage()] = assign.plan().start_step();
  Say(key, std::move(ready));
}

void SimWorker::Work(MonoTime now, const Faults& faults, Random& random) {
  if (now - last_heartbeat_ >= absl::Seconds(1)) {
    v1::WorkerMessage alive;
    alive.mutable_heartbeat();
    outbox.push_back(std::move(alive));
    last_heartbeat_ = now;
  }
  if (assigned_ && assigned_->started && Chance(random, 0.5)) OneStep(faults, random);
}

void SimWorker::WriteShard(uint64_t step) {
  world_->shards.insert({assigned_->key.run, step, assigned_->stage, "id-" + name_});
  v1::WorkerMessage message;
  *message.mutable_shard() = ShardOf(step, assigned_->stage);
  Say(assigned_->key, std::move(message));
}

void SimWorker::OneStep(const Faults& faults, Random& random) {
  EpochTruth& truth = world_->epochs[assigned_->key];
  const uint64_t done = truth.step[assigned_->stage];
  for (uint32_t peer = 0; peer < truth.stages; ++peer) {
    const auto it = truth.step.find(peer);
    if (it == truth.step.end()) {
      if (truth.finished.contains(peer)) continue;
      const bool neighbour = peer + 1 == assigned_->stage || peer == assigned_->stage + 1;
      if (!neighbour || !Chance(random, 0.3)) return;  // its peer timeout has not passed
      SayError("no answer", peer);
      DropEpoch();
      return;
    }
    if (it->second < done) return;  // waits for the data of that stage
  }
  if (Chance(random, faults.error)) {
    SayError("out of memory", {});
    DropEpoch();
    return;
  }
  if (truth.stages > 1 && Chance(random, faults.link)) {
    SayError("no answer", assigned_->stage > 0 ? assigned_->stage - 1 : 1);
    DropEpoch();
    return;
  }
  const uint64_t step = done + 1;
  truth.step[assigned_->stage] = step;
  v1::WorkerMessage message;
  v1::StepReport& report = *message.mutable_step();
  report.set_step(step);
  report.set_stage(assigned_->stage);
  report.set_seconds(0.1);
  report.set_has_norm(assigned_->stage == 0);
  report.set_gradient_norm(1);
  report.set_has_loss(assigned_->stage + 1 == truth.stages);
  report.set_loss(Chance(random, faults.nonfinite) ? std::nan("") : 3.0);
  report.set_first_nonfinite(report.has_loss() && std::isnan(report.loss()));
  Say(assigned_->key, std::move(message));
  const bool stopping = truth.stop_at && step >= *truth.stop_at;
  const bool ends = stopping || step == kSteps;
  if (ends || step % kCheckpointEvery == 0) WriteShard(step);
  if (!ends) return;
  v1::WorkerMessage finished;
  finished.mutable_finished()->set_step(step);
  finished.mutable_finished()->set_stopped(step < kSteps);
  Say(assigned_->key, std::move(finished));
  truth.finished.insert(assigned_->stage);
  DropEpoch();
}

}  // namespace longhaul::coordinator::sim
