// What a stage tells the coordinator: steps, shards, settings.
#include <fmt/core.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "run/plan/proto/plan_proto.h"
#include "worker/pipeline/checkpoint_writer.h"
#include "worker/pipeline/executor.h"
#include "worker/pipeline/expert_load.h"
#include "worker/pipeline/preference_report.h"

namespace longhaul::worker {

void Executor::CheckpointWritten(const CheckpointWriter::Job& job,
                                 const StatusOr<std::vector<ShardFile>>& files) {
  const SharedSnapshot& snapshot = job.snapshot;
  v1::WorkerMessage message;
  message.mutable_shard()->set_step(snapshot->step);
  if (!files.ok()) {
    if (snapshot->step == last_checkpoint_) {
      events_->Push(
          Failed{Annotate(files.status(), fmt::format("checkpoint of step {}", snapshot->step))});
      return;
    }
    LogWarning("run {}: the checkpoint of step {} is skipped: {}", options_.run.value(),
               snapshot->step, Message(files.status()));
    message.mutable_shard()->set_problem(std::string(Message(files.status())));
    options_.report(std::move(message));
    return;
  }
  resident_.Keep(snapshot, *files);
  message.mutable_shard()->set_interim(job.interim);
  for (const ShardFile& file : *files) {
    v1::CheckpointFile* out = message.mutable_shard()->add_files();
    out->set_name(file.name);
    out->set_bytes(file.bytes);
    out->set_sha256(file.sha256);
    out->set_stage(options_.cell.stage);
    if (file.replica) out->set_replica(*file.replica);
  }
  if (job.inputs_file) {
    v1::CheckpointFile* out = message.mutable_shard()->mutable_recording();
    out->set_name(job.inputs_file->name);
    out->set_bytes(job.inputs_file->bytes);
    out->set_sha256(job.inputs_file->sha256);
    out->set_stage(options_.cell.stage);
    message.mutable_shard()->set_recorded_from(job.inputs->from.value());
  }
  options_.report(std::move(message));
  ForgetMessages();
}

// What the coordinator has dropped, no resume asks for.
void Executor::ForgetMessages() {
  const StatusOr<std::optional<Step>> oldest = options_.shards->Oldest(options_.run);
  if (!oldest.ok() || !*oldest) return;
  for (const auto& port : options_.ports) port->ForgetMessages(**oldest);
}

void Executor::ReportRetuned() {
  v1::WorkerMessage message;
  message.mutable_retuned()->set_retune(retuned_->first);
  message.mutable_retuned()->set_step(retuned_->second.value());
  options_.report(std::move(message));
}

void Executor::AddCollectives(v1::StepReport* report) {
  CollectiveUse now = resident_.model().collectives();
  if (now.forward.empty()) return;  // of one rank
  v1::CollectiveUse& use = *report->mutable_collectives();
  *use.mutable_sent() = ToProto(now.sent - collectives_before_.sent);
  if (now.seconds) use.set_seconds(*now.seconds - collectives_before_.seconds.value_or(0));
  collectives_before_ = std::move(now);
}

void Executor::AddExpertLoad(v1::StepReport* report) const {
  const std::vector<std::vector<int64_t>> tokens = resident_.model().TokensOfExperts();
  if (auto load = ExpertLoadOf(tokens, resident_.identity().options.first_layer)) {
    *report->mutable_expert_load() = *std::move(load);
  }
}

std::vector<EdgePort*> Executor::AllPorts() const {
  std::vector<EdgePort*> ports;
  for (const auto& port : options_.ports) ports.push_back(port.get());
  for (const auto& port : options_.replica_ports) ports.push_back(port.get());
  return ports;
}

void Executor::ReportStep(const wire::StepMessage& agreed, double learning_rate, bool skipped) {
  const MonoTime now = Now();
  v1::WorkerMessage message;
  v1::StepReport* report = message.mutable_step();
  report->set_step(step_.value());
  report->set_seconds(absl::ToDoubleSeconds(now - step_began_));
  report->set_forward_seconds(absl::ToDoubleSeconds(times_.forward));
  report->set_backward_seconds(absl::ToDoubleSeconds(times_.backward));
  report->set_optimizer_seconds(absl::ToDoubleSeconds(times_.optimizer));
  report->set_wait_input_seconds(absl::ToDoubleSeconds(times_.wait_input));
  report->set_wait_gradient_seconds(absl::ToDoubleSeconds(times_.wait_gradient));
  const absl::Duration codec_busy = options_.codec_thread->BusyTime();
  report->set_codec_seconds(absl::ToDoubleSeconds(codec_busy - codec_busy_before_));
  codec_busy_before_ = codec_busy;
  AddCollectives(report);
  report->set_codec_wait_seconds(absl::ToDoubleSeconds(times_.wait_codec));
  report->set_peak_in_flight(peak_in_flight_);
  report->set_norm_wait_seconds(absl::ToDoubleSeconds(norm_wait_));
  report->set_norm_turn_seconds(absl::ToDoubleSeconds(norm_turn_));
  report->set_squared_norm(own_squared_norm_);
  report->set_numerics(options_.numerics);
  report->set_skipped(skipped);
  if (!skipped) AddExpertLoad(report);
  for (EdgePort* const port : AllPorts()) {
    const PortUse use = port->TakeUse();
    v1::LinkUse* link = report->add_links();
    link->set_edge(port->edge().value());
    link->set_payload_bytes_sent(use.payload_bytes_sent);
    link->set_link_bytes_sent(use.link_bytes_sent);
    link->set_send_busy_seconds(absl::ToDoubleSeconds(use.send_busy));
    link->set_credit_wait_seconds(absl::ToDoubleSeconds(use.credit_wait));
    link->set_received_bytes(use.received_bytes);
    link->set_receive_seconds(absl::ToDoubleSeconds(use.receive_time));
    report->set_nonfinite_tiles(report->nonfinite_tiles() + use.nonfinite_tiles);
  }
  if (last() && !options_.spec.replay) {
    report->set_has_loss(true);
    report->set_loss(loss_sum_ / options_.spec.train.microbatches);
    const PreferenceSums preferences = resident_.ModelFor(step_).TakePreferences();
    if (preferences.pairs > 0) *report->mutable_preferences() = ReportOf(preferences);
  }
  if (first()) {
    report->set_has_norm(true);
    report->set_gradient_norm(std::sqrt(agreed.squared_norm));
    report->set_learning_rate(learning_rate);
  }
  report->set_first_nonfinite(report->nonfinite_tiles() > 0 ||
                              (last() && !std::isfinite(loss_sum_)));
  AddDigests(report);
  options_.report(std::move(message));
  trace_->EndStep(step_, step_began_, now);
  work_->EndStep(now - step_began_);
  times_ = {};
  peak_in_flight_ = 0;
  step_began_ = mark_ = now;
}

}  // namespace longhaul::worker
