#include "worker/epoch/epoch_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/cuda/device_lost.h"
#include "base/log.h"
#include "base/units.h"
#include "run/plan/proto/plan_proto.h"
#include "worker/pipeline/boundary_messages.h"
#include "worker/pipeline/watchdog.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kFlushLimit = absl::Seconds(2);

}  // namespace

EpochRun::EpochRun(const Resources& resources, const v1::Assign& assign,
                   std::unique_ptr<ResidentStage> resident, std::optional<Step> audit_until)
    : resources_(resources),
      assignment_(FromProto(assign.assignment())),
      cell_(FromProto(assign.cell())),
      audit_until_(audit_until),
      link_secret_(assign.link_secret()),
      inputs_(resources_, assignment_, cell_, [this] { return Cancelled(); }),
      resident_(std::move(resident)),
      ports_(resources_, assignment_, cell_, EdgeSecretsOf(assign), EdgeWaysOf(assign), events_,
             trace_) {
  for (const v1::AcceptedOutlier& one : assign.accepted_outliers()) {
    accepted_outliers_.emplace(one.step(), EdgeId(one.edge()),
                               one.forward() ? Direction::kForward : Direction::kBackward);
  }
  if (resources_.kept_messages) resources_.kept_messages->BeginRun(assignment_.run);
  for (const v1::CheckpointFile& file : assign.resume_files()) {
    (HoldsTables(file.name()) ? table_files_ : resume_files_).push_back(file);
  }
}

EpochRun::~EpochRun() = default;

void EpochRun::Report(v1::WorkerMessage message) {
  message.set_run_id(run().value());
  message.set_epoch(epoch().value());
  message.set_stamp(stamp().value());
  resources_.send(std::move(message));
}

Status EpochRun::Train() {
  const Watchdog watchdog(work_.get(), resources_.codec_thread, resources_.progress_timeout,
                          [this](const std::string& hang) { GiveUp(v1::WORKER_FAULT_HUNG, hang); });
  return executor_->Run();
}

void EpochRun::GiveUp(v1::WorkerFault fault, const std::string& message) {
  v1::WorkerMessage last;
  last.mutable_error()->set_message(message);
  last.mutable_error()->set_code(static_cast<int32_t>(absl::StatusCode::kInternal));
  last.mutable_error()->set_restarts_for(fault);
  last.mutable_error()->set_step(work_->step().value());
  Report(std::move(last));
  if (resources_.restart) resources_.restart({fault, message});
}

void EpochRun::FillAtHand(v1::Heartbeat* heartbeat) const {
  const std::lock_guard lock(mutex_);
  if (!ready_with_ || !started_) return;  // before that ports are being made
  v1::AtHand& at_hand = *heartbeat->mutable_at_hand();
  at_hand.set_run_id(run().value());
  at_hand.set_epoch(epoch().value());
  at_hand.set_stamp(stamp().value());
  at_hand.set_step(work_->step().value());
  at_hand.set_doing(work_->Doing());
  uint64_t progress = work_->progress() + resources_.codec_thread->progress();
  progress += ports_.frames_received();
  at_hand.set_progress(progress);
  const std::optional<WorkAtHand::Piece> piece = work_->piece();
  at_hand.set_writes_state(piece && piece->kind == WorkAtHand::Kind::kDisk);
}

StageReading EpochRun::Reading() const {
  StageReading reading{.run = run(), .epoch = epoch(), .cell = cell_};
  if (const Cell* mine = assignment_.Find(cell_)) reading.planned_memory_bytes = mine->memory_bytes;
  const std::lock_guard lock(mutex_);
  if (ready_with_ && started_)
    reading.links = ports_.Readings();  // before that they are being made
  return reading;
}

void EpochRun::ReportError(const Status& status) {
  LogError("run {}: {}", run().value(), Message(status));
  if (cuda::IsDeviceLost(status)) {
    GiveUp(v1::WORKER_FAULT_DEVICE_LOST, fmt::format("lost its GPU: {}", Message(status)));
    return;
  }
  v1::WorkerMessage message;
  v1::RunError* error = message.mutable_error();
  error->set_message(std::string(Message(status)));
  error->set_code(static_cast<int32_t>(status.code()));
  if (executor_) error->set_step(executor_->step());
  const auto edge = executor_ ? executor_->lost_edge() : ports_.lost_edge();
  if (edge) error->set_lost_edge(edge->value());
  Report(std::move(message));
}

void EpochRun::Run() {
  Status status = Prepare();
  if (status.ok()) {
    SayReady();
    status = WaitForStart();
  }
  if (status.ok()) {
    ReportForgotten();
    if (chunks_) chunks_->SetOthers(readers_);  // who has read the same by now answers
    LogInfo("run {}: {} begins after step {}", run().value(), ToString(cell_),
            assignment_.start_step);
    status = Train();
    SayMemory();
    // Also frees what the step under way holds.
    const Status kept = resident_->EndEpoch(status);
    if (!kept.ok()) {
      LogInfo("run {}: the model of {} is given up, because it may have been left half-way: {}",
              run().value(), ToString(cell_), Message(kept));
      gives_model_up_ = true;
    }
  }
  if (Cancelled()) {
    LogInfo("run {}: {} dropped", run().value(), ToString(cell_));
  } else if (!status.ok()) {
    ReportError(status);
  } else {
    LogInfo("run {}: {} finished at step {}", run().value(), ToString(cell_), executor_->step());
    // Neighbours may still need what is in flight, so the links stay open until the coordinator
    // says that all stages have finished.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return cancelled_.has_value(); });
  }
  LeaveReaders();
  ports_.Close(Deadline::After(kFlushLimit));
  // Few runs continue after their end: the model makes room for others, and message buffers would
  // start empty anyway.
  if (AllFinished() && executor_ && executor_->step() >= spec_.train.steps) {
    gives_model_up_ = true;
    BoundaryMessages::Drop(resources_.messages_root, run());
  }
}

std::unique_ptr<ResidentStage> EpochRun::TakeResident() {
  executor_.reset();  // works on it
  if (gives_model_up_) resident_.reset();
  return std::move(resident_);
}

void EpochRun::SayMemory() {
  const uint64_t bytes = resident_->model().peak_memory_bytes();
  if (bytes == 0) return;
  LogInfo("run {}: {} took {} of the GPU's memory at most, {} were planned", run().value(),
          ToString(cell_), FormatBytes(static_cast<double>(bytes)),
          FormatBytes(static_cast<double>(assignment_.Find(cell_)->memory_bytes)));
}

void EpochRun::ReportForgotten() {
  for (const BoundaryPort* port : ports_.forgotten()) {
    LogWarning("run {}: what the codecs of the link to {} remember begins anew", run().value(),
               ToString(port->peer()));
    // Only one end reports it, so that there is one event.
    if (!port->upstream()) continue;
    v1::WorkerMessage message;
    message.mutable_link()->set_edge(port->edge().value());
    message.mutable_link()->set_state("forgotten");
    Report(std::move(message));
  }
}

void EpochRun::LeaveReaders() {
  std::shared_ptr<ChunkPeers> readers;
  {
    const std::lock_guard lock(mutex_);
    readers = std::move(readers_);
  }
  // Chunks must not ask peers any more before the peers close.
  if (chunks_) {
    chunks_->SetOthers(nullptr);
    const auto tally = chunks_->TakeTally();
    if (!tally.empty()) {
      LogInfo("run {}: {} read of its data sets: {}", run().value(), ToString(cell_),
              ToString(tally));
    }
    chunks_.reset();
  }
  if (readers) readers->Close();
}

void EpochRun::SayReady() {
  v1::WorkerMessage message;
  {
    const std::lock_guard lock(mutex_);
    if (!ready_with_) return;
    message.mutable_stage_ready()->set_parameters(*ready_with_);
  }
  message.mutable_stage_ready()->set_start_step(assignment_.start_step);
  Report(std::move(message));
}

Status EpochRun::WaitForStart() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ || cancelled_; });
  return cancelled_ ? absl::CancelledError(*cancelled_) : absl::OkStatus();
}

void EpochRun::Start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  changed_.notify_all();
}

void EpochRun::RequestStop() {
  events_->Push(StopRequested{});
}

void EpochRun::RequestRetune(const v1::Retune& retune) {
  RetuneRequested request{retune.retune(), retune.depth(), std::nullopt};
  if (retune.has_activation_lead()) request.activation_lead = retune.activation_lead();
  events_->Push(request);
}

void EpochRun::RequestSamples(const v1::TakeSamples& wanted) {
  SamplesRequested request{.request = wanted.request(), .prompts = {}, .round = {}};
  for (const v1::TakeSamples::Prompt& prompt : wanted.prompts()) {
    request.prompts.emplace_back(prompt.ids().begin(), prompt.ids().end());
  }
  request.round.tokens = wanted.tokens();
  request.round.top_k = wanted.top_k();
  request.round.temperature = wanted.temperature();
  request.round.top_p = wanted.top_p();
  request.round.seed = wanted.seed();
  request.round.stops.assign(wanted.stop().begin(), wanted.stop().end());
  events_->Push(std::move(request));
}

void EpochRun::Readdress(const v1::Readdress& moved) {
  const EdgeId edge(moved.edge());
  const std::vector<std::string> addresses(moved.addresses().begin(), moved.addresses().end());
  ports_.Readdress(edge, addresses);
  const Edge* found = assignment_.Find(edge);
  const std::lock_guard lock(mutex_);
  if (readers_ && found != nullptr) readers_->Readdress(found->PeerOf(cell_), addresses);
}

void EpochRun::Cancel(const std::string& reason, bool finished) {
  {
    // Set before the executor hears of it: whoever sees the executor end then finds the run
    // cancelled.
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      cancelled_ = reason;
      all_finished_ = finished;
    }
    if (readers_) readers_->GiveUp();
    changed_.notify_all();
  }
  events_->Push(AbortRequested{absl::CancelledError(reason)});
}

bool EpochRun::AllFinished() const {
  const std::lock_guard lock(mutex_);
  return all_finished_;
}

bool EpochRun::Cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_.has_value();
}

}  // namespace longhaul::worker
