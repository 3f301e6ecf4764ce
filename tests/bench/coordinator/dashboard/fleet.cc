#include "tests/bench/coordinator/dashboard/fleet.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "coordinator/store/prepare_data.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"
#include "tests/support/worker_answers.h"

namespace longhaul::bench {
namespace {

using coordinator::BlobStore;
using coordinator::Shell;

constexpr uint32_t kMicrobatches = 8;
constexpr uint64_t kCheckpointEvery = 1000;
constexpr uint64_t kValidateEvery = 50;
constexpr uint64_t kBatch = 64;  // steps that are said before they are waited for
constexpr double kStepSeconds = 0.5;
constexpr absl::Duration kPatience = absl::Seconds(60);

// As a loss looks: falls, and jumps about. The same in every run.
double LossAt(uint64_t step) {
  const auto at = static_cast<double>(step);
  const double noise = std::sin(at * 12.9898) * 43758.5453;
  const double spike = step % 9973 == 0 ? 1.5 : 0;
  return 2.2 + 6.5 / std::sqrt(1 + at / 40) + 0.12 * (noise - std::floor(noise) - 0.5) + spike;
}

}  // namespace

Status StandIn::Join() {
  v1::Hello hello = coordinator::HelloOf(name_);
  hello.set_host("host-" + name_);
  LH_ASSIGN_OR_RETURN(session_, shell_->Join(shared_from_this(), hello));
  return absl::OkStatus();
}

v1::WorkerMessage StandIn::Message() const {
  v1::WorkerMessage message;
  message.set_run_id(assign_.assignment().run_id());
  message.set_epoch(assign_.assignment().epoch());
  message.set_stamp(StampOf(assign_.assignment().hash()).value());
  return message;
}

void StandIn::Say(v1::WorkerMessage message) {
  shell_->Say(session_, std::move(message));
}

void StandIn::Beat() {
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_memory_used_bytes(uint64_t{1} << 30);
  Say(std::move(message));
}

void StandIn::Send(v1::WorkerCommand command) {
  v1::WorkerMessage answer;
  answer.set_run_id(command.run_id());
  answer.set_epoch(command.epoch());
  answer.set_stamp(command.stamp());
  if (command.has_measure()) {
    *answer.mutable_layer_times() = coordinator::SmallTimes();
  } else if (command.has_try_reach() && command.try_reach().dial()) {
    // One worker of a hundred is behind a firewall.
    const bool cut = name_.ends_with("50") || command.try_reach().peer_name().ends_with("50");
    *answer.mutable_reach_tried() =
        testing::ReachTriedOf(command.try_reach(), cut ? "connection refused" : "");
  } else if (command.has_probe_link()) {
    answer.mutable_link_probed()->set_probe(command.probe_link().probe());
    answer.mutable_link_probed()->set_goodput_bits_per_second(1e8);
    answer.mutable_link_probed()->set_round_trip_seconds(0.02);
  } else if (command.has_check_shards()) {
    answer.mutable_shards_checked()->set_check(command.check_shards().check());
    for (const v1::CheckpointFile& file : command.check_shards().files()) {
      answer.mutable_shards_checked()->add_shards()->set_name(file.name());
    }
  } else if (command.has_assign()) {
    const std::lock_guard lock(mutex_);
    assign_ = command.assign();
    answer.mutable_stage_ready()->set_start_step(assign_.assignment().start_step());
  } else if (command.has_start()) {
    answer.mutable_stage_started();
    training_ = true;
  } else if (command.has_send_trace()) {
    *answer.mutable_trace() = Trace();
    answer.mutable_trace()->set_request(command.send_trace().request());
  } else {
    return;
  }
  Say(std::move(answer));
}

v1::StageTrace StandIn::Trace() const {
  const std::lock_guard lock(mutex_);
  const uint32_t stage = assign_.cell().stage();
  const auto stages = static_cast<uint32_t>(assign_.assignment().cells_size());
  v1::StageTrace trace;
  *trace.mutable_cell() = assign_.cell();
  trace.set_clock_id("one machine");
  v1::StepTrace& step = *trace.add_steps();
  step.set_step(step_);
  // All forwards, then all backwards, which take twice as long.
  const double turn = kMicrobatches + stages, whole = 3 * turn;
  const double unit = 1e9 * kStepSeconds / whole;
  step.set_end_ns(static_cast<int64_t>(kStepSeconds * 1e9));
  const auto add = [&](v1::Span::Kind kind, uint32_t index, double begin, double length) {
    v1::Span& span = *step.add_spans();
    span.set_kind(kind);
    span.set_microbatch(index);
    span.set_begin_ns(static_cast<int64_t>(begin * unit));
    span.set_length_ns(static_cast<int64_t>(length * unit));
  };
  if (stage > 0) add(v1::Span::WAIT_INPUT, 0, 0, stage);
  for (uint32_t i = 0; i < kMicrobatches; ++i) {
    const double forward = stage + i;
    const double backward = turn + 2.0 * (stages - 1 - stage + i);
    add(v1::Span::FORWARD, i, forward, 0.9);
    add(v1::Span::ENCODE, i, forward + 0.9, 0.3);
    if (stage > 0) add(v1::Span::RECEIVE, i, forward - 0.6, 0.5);
    add(v1::Span::BACKWARD, i, backward, 1.6);
  }
  const double first = turn + 2.0 * (stages - 1 - stage), last = stage + kMicrobatches;
  if (first > last) add(v1::Span::WAIT_GRADIENT, 0, last, first - last);
  add(v1::Span::OPTIMIZER, 0, whole - 1, 0.9);
  return trace;
}

void StandIn::Step(uint64_t step) {
  const std::lock_guard lock(mutex_);
  const Assignment assignment = FromProto(assign_.assignment());
  const Cell& cell = *assignment.Find(FromProto(assign_.cell()));
  const auto stages = static_cast<double>(assignment.cells.size());
  step_ = step;
  v1::WorkerMessage message = Message();
  v1::StepReport& report = *message.mutable_step();
  report.set_step(step);
  report.set_seconds(kStepSeconds * (1 + 0.02 * std::sin(static_cast<double>(step))));
  report.set_forward_seconds(0.13);
  report.set_backward_seconds(0.2);
  report.set_optimizer_seconds(0.02);
  report.set_wait_input_seconds(0.1 * cell.id.stage / stages);
  report.set_wait_gradient_seconds(0.1 * (stages - cell.id.stage) / stages);
  report.set_codec_seconds(0.05);
  report.set_has_norm(cell.roles.embedding);
  report.set_gradient_norm(1 + std::abs(std::sin(static_cast<double>(step) / 7)) / 3);
  report.set_learning_rate(1e-3);
  report.set_has_loss(cell.roles.head);
  report.set_loss(LossAt(step));
  for (const Edge& edge : assignment.edges) {
    if (edge.from != cell.id && edge.to != cell.id) continue;
    v1::LinkUse& use = *report.add_links();
    use.set_edge(edge.id.value());
    use.set_payload_bytes_sent(4'000'000);
    use.set_link_bytes_sent(4'100'000);
    use.set_send_busy_seconds(0.4);
    use.set_credit_wait_seconds(0.05);
  }
  Say(message);
  if (cell.roles.head && step % kValidateEvery == 0) {
    message.mutable_validation()->set_step(step);
    message.mutable_validation()->set_loss(LossAt(step) + 0.05);
    Say(message);
  }
  if (step % kCheckpointEvery == 0) {
    *message.mutable_shard() = coordinator::ShardOf(step, cell.id.stage);
    Say(std::move(message));
  }
}

void StandIn::SayLink(const std::string& state) {
  const std::lock_guard lock(mutex_);
  const CellId self = FromProto(assign_.cell());
  for (const Edge& edge : FromProto(assign_.assignment()).edges) {
    if (edge.from != self) continue;
    v1::WorkerMessage message = Message();
    v1::LinkEvent& link = *message.mutable_link();
    link.set_edge(edge.id.value());
    link.set_state(state);
    link.set_silence_seconds(2.5);
    link.set_reason(state == "lost" ? "connection reset by peer" : "");
    Say(std::move(message));
  }
}

StatusOr<std::unique_ptr<Fleet>> Fleet::Create(const std::string& folder, uint32_t workers) {
  auto fleet = std::make_unique<Fleet>();
  LH_ASSIGN_OR_RETURN(fleet->store_, coordinator::Store::Open(folder));
  LH_ASSIGN_OR_RETURN(fleet->blobs_, BlobStore::Open(folder + "/blobs"));
  LH_ASSIGN_OR_RETURN(auto preparer,
                      coordinator::DataPreparer::Open(folder + "/prepared", fleet->blobs_.get()));
  coordinator::StateOptions options;
  options.version = "stand-in";
  LH_ASSIGN_OR_RETURN(fleet->shell_,
                      Shell::Create(options, fleet->store_.get(), fleet->blobs_.get(),
                                    fleet->blobs_.get(), std::move(preparer)));
  for (uint32_t i = 1; i <= workers; ++i) {
    fleet->workers_.push_back(
        std::make_shared<StandIn>(fleet->shell_.get(), fmt::format("worker{:04}", i)));
    LH_RETURN_IF_ERROR(fleet->workers_.back()->Join());
  }
  return fleet;
}

Fleet::~Fleet() {
  if (shell_ != nullptr) shell_->Stop(Deadline::After(absl::Seconds(1)));
}

StatusOr<std::string> Fleet::Train(const std::string& name, uint32_t stages, uint64_t steps) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>('a' + i * i % 26);
  const std::string sha256 = Sha256Hex(text);
  LH_ASSIGN_OR_RETURN(const auto upload, blobs_->StartUpload(sha256, text.size()));
  LH_RETURN_IF_ERROR(upload->Append(text));
  LH_RETURN_IF_ERROR(upload->Finish());
  RunSpec spec = coordinator::SmallSpec(name, stages);
  spec.model.layers = std::max(2 * stages, 2u);
  spec.train.steps = steps;
  spec.train.microbatches = kMicrobatches;
  spec.links.codecs = {"tah:p=0.7", "fixed:bits=6"};
  spec.checkpoint.every = kCheckpointEvery;
  spec.validation.every = kValidateEvery;
  v1::SubmitRequest request;
  v1::DataFile& file = *request.add_data_files();
  file.set_name("corpus.txt");
  file.set_sha256(sha256);
  file.set_bytes(text.size());
  const auto answer = std::make_shared<std::promise<StatusOr<v1::SubmitReply>>>();
  shell_->Submit(spec, request, {}, [answer](StatusOr<v1::SubmitReply> reply) {
    answer->set_value(std::move(reply));
  });
  LH_ASSIGN_OR_RETURN(const v1::SubmitReply reply, answer->get_future().get());
  const Deadline deadline = Deadline::After(kPatience);
  while (!deadline.Expired()) {
    LH_ASSIGN_OR_RETURN(const v1::RunStatus run, shell_->Read([&](const coordinator::Views& views) {
      return views.RunOf(reply.run_id());
    }));
    // The run is running a moment before the last stage has its command to start.
    const auto training =
        std::ranges::count_if(workers_, [](const auto& worker) { return worker->training(); });
    if (run.state() == "running" && training == stages) return reply.run_id();
    if (run.state() == "failed") return absl::InternalError(run.reason());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return absl::DeadlineExceededError("the run of the stand-ins does not begin");
}

Status Fleet::Remove() {
  const std::string run =
      shell_->Read([&](const coordinator::Views& views) { return views.Runs(); }).front().run_id();
  const auto stopped = std::make_shared<std::promise<Status>>();
  shell_->Ask(
      coordinator::event::StopAsked{.run = run, .now = true},
      [stopped](const StatusOr<v1::StopReply>& reply) { stopped->set_value(reply.status()); });
  LH_RETURN_IF_ERROR(stopped->get_future().get());
  const auto removed = std::make_shared<std::promise<Status>>();
  shell_->Ask(
      coordinator::event::RemoveAsked{.run = run},
      [removed](const StatusOr<v1::RemoveRunReply>& reply) { removed->set_value(reply.status()); });
  return removed->get_future().get();
}

Status Fleet::Step(uint64_t count) {
  std::vector<StandIn*> training;
  for (const auto& worker : workers_) {
    if (worker->training()) training.push_back(worker.get());
  }
  const std::string run =
      shell_->Read([&](const coordinator::Views& views) { return views.Runs(); }).front().run_id();
  for (uint64_t done = 0; done < count;) {
    for (uint64_t i = 0; i < kBatch && done < count; ++i, ++done) {
      ++step_;
      for (StandIn* worker : training) worker->Step(step_);
    }
    const Deadline deadline = Deadline::After(kPatience);
    while (shell_->Read([&](const coordinator::Views& views) { return views.RunOf(run); })->step() <
           step_) {
      if (deadline.Expired()) {
        return DeadlineExceeded("step {} did not come to the state machine", step_);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (done % (kBatch * 32) == 0) Beat();
  }
  return absl::OkStatus();
}

void Fleet::Beat() {
  for (const auto& worker : workers_) worker->Beat();
}

void Fleet::SayLink(uint32_t stage, const std::string& state) {
  uint32_t at = 0;
  for (const auto& worker : workers_) {
    if (worker->training() && at++ == stage) worker->SayLink(state);
  }
}

}  // namespace longhaul::bench
