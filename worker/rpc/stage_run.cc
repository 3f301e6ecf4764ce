#include "worker/rpc/stage_run.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "codec/registry.h"
#include "run/boundary/boundary_shape.h"
#include "run/tokens/token_file.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/pipeline/replay_codec.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kPrepareLimit = absl::Minutes(10);
constexpr absl::Duration kShardsLimit = absl::Minutes(30);
constexpr absl::Duration kLinkLimit = absl::Seconds(30);
// To read message buffers again at the beginning.
constexpr double kMessageBytesPerSecond = 50e6;
constexpr absl::Duration kFlushLimit = absl::Seconds(2);

StatusOr<std::shared_ptr<const codec::Codec>> MakeCodec(const std::string& text) {
  LH_ASSIGN_OR_RETURN(auto codec, codec::ParseCodec(text));
  return std::shared_ptr<const codec::Codec>(std::move(codec));
}

// What a channel of this run encodes or decodes with.
StatusOr<std::shared_ptr<const codec::Codec>> PortCodec(const RunSpec& spec,
                                                        const std::string& text) {
  LH_ASSIGN_OR_RETURN(auto codec, MakeCodec(text));
  if (!spec.replay || spec.replay->real_codecs) return codec;
  const ReplaySpec::CodecTimes* times = spec.replay->TimesOf(codec->name());
  if (times == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("expected replay.codec_times of {}, got none", codec->name()));
  }
  return MakeReplayCodec(std::move(codec), *times, BoundaryShape(spec));
}

// Who is ready waits for a neighbour that still goes through its message buffers.
absl::Duration LinkLimit(const v1::Plan& plan) {
  uint64_t most = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    most = std::max(most, stage.message_record_bytes() + stage.message_journal_bytes());
  }
  return kLinkLimit + absl::Seconds(static_cast<double>(most) / kMessageBytesPerSecond);
}

}  // namespace

std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu) {
  return spec.replay ? std::nullopt : gpu;
}

StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, uint32_t first_layer,
                             uint32_t layers, bool first, bool last, uint32_t threads,
                             const std::optional<cuda::Device>& gpu) {
  DeviceName device;
  if (gpu) device.cuda_index = static_cast<uint32_t>(gpu->index());
  return {.model = spec.model,
          .train = spec.train,
          .vocabulary = vocabulary,
          .first_layer = first_layer,
          .layers = layers,
          .first = first,
          .last = last,
          .recompute = spec.pipeline.recompute,
          .threads = threads,
          .device = device,
          .replay = spec.replay};
}

StageRun::StageRun(const Resources& resources, std::string run_id, v1::Assign assign)
    : resources_(resources), run_id_(std::move(run_id)), assign_(std::move(assign)) {}

StageRun::~StageRun() = default;

void StageRun::Report(v1::WorkerMessage message) {
  message.set_run_id(run_id_);
  message.set_epoch(epoch());
  resources_.send(std::move(message));
}

void StageRun::ReportError(const Status& status) {
  spdlog::error("run {}: {}", run_id_, Message(status));
  v1::WorkerMessage message;
  v1::RunError* error = message.mutable_error();
  error->set_message(std::string(Message(status)));
  error->set_code(static_cast<int32_t>(status.code()));
  error->set_stage(stage());
  if (executor_) {
    error->set_step(executor_->step());
    if (const auto peer = executor_->lost_peer()) {
      error->set_peer_lost(true);
      error->set_peer_stage(peer->value());
    }
  }
  Report(std::move(message));
}

void StageRun::Run() {
  Status status = Prepare();
  if (status.ok()) {
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
    }
    SayReady();
    status = WaitForStart();
  }
  if (status.ok()) {
    ReportForgotten();
    spdlog::info("run {}: stage {} begins after step {}", run_id_, stage(),
                 assign_.plan().start_step());
    status = executor_->Run();
    SayMemory();
  }
  if (Cancelled()) {
    spdlog::info("run {}: stage {} dropped", run_id_, stage());
  } else if (!status.ok()) {
    ReportError(status);
  } else {
    spdlog::info("run {}: stage {} finished at step {}", run_id_, stage(), executor_->step());
    // Neighbours may still be at work with what is in flight: the coordinator says when all have
    // finished.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return cancelled_.has_value(); });
  }
  for (const auto& [channel, peer] : {std::pair{up_, stage() - 1}, std::pair{down_, stage()}}) {
    if (channel) {
      channel->Close(Deadline::After(kFlushLimit));
    } else {
      for (const auto& [name, transport] : resources_.transports) {
        transport->Cancel({RunId(run_id_), Epoch(epoch()), EdgeId(peer)});
      }
    }
  }
  // Nobody goes back to a checkpoint of a run that is done.
  if (AllFinished() && executor_ && executor_->step() >= spec_.train.steps) {
    BoundaryMessages::Drop(resources_.messages_root, RunId(run_id_));
  }
}

void StageRun::SayMemory() const {
  const uint64_t bytes = model_->peak_memory_bytes();
  if (bytes == 0) return;
  const v1::StagePlan& mine = assign_.plan().stages(static_cast<int>(stage()));
  spdlog::info("run {}: stage {} took {} of the GPU's memory at most, {} were planned", run_id_,
               stage(), FormatBytes(static_cast<double>(bytes)),
               FormatBytes(static_cast<double>(mine.memory_bytes())));
}

Status StageRun::Prepare() {
  const v1::Plan& plan = assign_.plan();
  if (stage() >= static_cast<uint32_t>(plan.stages_size()) ||
      plan.links_size() + 1 != plan.stages_size()) {
    return absl::InvalidArgumentError(
        fmt::format("expected a plan with stage {} and a link between any two stages; it has {} "
                    "stages and {} links",
                    stage(), plan.stages_size(), plan.links_size()));
  }
  LH_ASSIGN_OR_RETURN(spec_, ParseRunSpec(plan.run_yaml(), "run.yaml", {}, codec::CheckCodec));
  const v1::StagePlan& mine = plan.stages(static_cast<int>(stage()));
  uint32_t least_depth_above = spec_.train.microbatches;
  for (int above = 0; above < static_cast<int>(stage()); ++above) {
    least_depth_above = std::min(least_depth_above, plan.stages(above).depth());
  }
  if (mine.activation_lead() > least_depth_above) {
    return absl::InvalidArgumentError(fmt::format(
        "expected a plan in which all stages above have the depth that stage {}'s activation lead "
        "of {} needs; one has {}",
        stage(), mine.activation_lead(), least_depth_above));
  }
  const bool first = stage() == 0;
  const bool last = stage() + 1 == static_cast<uint32_t>(plan.stages_size());
  LH_ASSIGN_OR_RETURN(
      model_, Stage::Create(StageOptionsFor(spec_, plan.data().vocabulary(), mine.first_layer(),
                                            mine.layers(), first, last, mine.threads(),
                                            GpuOf(spec_, resources_.gpu))));
  const Deadline deadline = Deadline::After(kPrepareLimit);
  if (first || last) {
    LH_ASSIGN_OR_RETURN(const std::string path,
                        resources_.blobs->Fetch(plan.data().token_file_sha256(), deadline,
                                                [this] { return Cancelled(); }));
    LH_ASSIGN_OR_RETURN(TokenFile tokens, TokenFile::Open(path, /*verify=*/true));
    batches_ = std::make_unique<Batches>(spec_, std::move(tokens));
  }
  if (plan.start_step() > 0) LH_RETURN_IF_ERROR(Restore());
  std::shared_ptr<BoundaryMessages> above;
  std::shared_ptr<BoundaryMessages> below;
  if (!first) {
    LH_ASSIGN_OR_RETURN(above, OpenMessages(/*upstream=*/true));
  }
  if (!last) {
    LH_ASSIGN_OR_RETURN(below, OpenMessages(/*upstream=*/false));
  }
  const Deadline link_deadline = Deadline::After(LinkLimit(plan));
  if (!first) {
    LH_ASSIGN_OR_RETURN(up_, OpenPort(/*upstream=*/true, std::move(above), link_deadline));
  }
  if (!last) {
    LH_ASSIGN_OR_RETURN(down_, OpenPort(/*upstream=*/false, std::move(below), link_deadline));
  }
  LH_RETURN_IF_ERROR(AgreeOnMessages(link_deadline));
  executor_ = std::make_unique<Executor>(
      ExecutorOptions{.spec = spec_,
                      .run = RunId(run_id_),
                      .stage = StageIndex(stage()),
                      .stages = static_cast<uint32_t>(plan.stages_size()),
                      .depth = mine.depth(),
                      .activation_lead = mine.activation_lead(),
                      .start_step = plan.start_step(),
                      .validation_tokens = plan.data().validation_tokens(),
                      .model = model_.get(),
                      .batches = std::move(batches_),
                      .up = up_,
                      .down = down_,
                      .events = events_,
                      .codec_thread = resources_.codec_thread,
                      .shards = resources_.shards,
                      .trace = trace_,
                      .report = [this](v1::WorkerMessage message) { Report(std::move(message)); }});
  return absl::OkStatus();
}

Status StageRun::Restore() {
  const std::string& me = assign_.plan().stages(static_cast<int>(stage())).worker_id();
  const Deadline deadline = Deadline::After(kShardsLimit);
  std::vector<ShardFile> files;
  for (const v1::CheckpointFile& file : assign_.resume_files()) {
    ShardFile& one = files.emplace_back(ShardFile{file.name(), file.bytes(), file.sha256()});
    if (file.worker_id() == me && file.problem().empty()) continue;
    StatusOr<std::string> copy =
        resources_.shard_copies->Fetch(file.sha256(), deadline, [this] { return Cancelled(); });
    if (!copy.ok()) {
      return Annotate(copy.status(), fmt::format("{} of the checkpoint of step {}", file.name(),
                                                 assign_.plan().start_step()));
    }
    one.path = *std::move(copy);
  }
  LH_ASSIGN_OR_RETURN(
      const StageSnapshot snapshot,
      resources_.shards->Read(RunId(run_id_), Step(assign_.plan().start_step()), files));
  for (const ShardFile& file : files) {
    if (!file.path.empty()) resources_.shard_copies->Forget(file.sha256);
  }
  return model_->Restore(snapshot);
}

StatusOr<std::shared_ptr<BoundaryMessages>> StageRun::OpenMessages(bool upstream) {
  const v1::Plan& plan = assign_.plan();
  const v1::LinkPlan& link = plan.links(static_cast<int>(upstream ? stage() - 1 : stage()));
  const v1::StagePlan& mine = plan.stages(static_cast<int>(stage()));
  LH_ASSIGN_OR_RETURN(const auto forward, MakeCodec(link.forward_codec()));
  LH_ASSIGN_OR_RETURN(const auto backward, MakeCodec(link.backward_codec()));
  return BoundaryMessages::Open(
      {.root = resources_.messages_root,
       .spec = spec_,
       .run = RunId(run_id_),
       .layers_before = mine.first_layer() + (upstream ? 0 : mine.layers()),
       .upstream = upstream,
       .windows =
           WindowsOf(plan.data().tokens() - plan.data().validation_tokens(), spec_.model.context),
       .start_step = plan.start_step(),
       .forward = forward.get(),
       .backward = backward.get()});
}

Status StageRun::AgreeOnMessages(Deadline deadline) {
  for (const auto& [channel, boundary] : {std::pair{up_, stage() - 1}, std::pair{down_, stage()}}) {
    if (!channel) continue;
    LH_ASSIGN_OR_RETURN(const bool kept,
                        channel->AgreeOnMessages(deadline, [this] { return Cancelled(); }));
    if (!kept) forgotten_.push_back(boundary);
  }
  return absl::OkStatus();
}

void StageRun::ReportForgotten() {
  for (const uint32_t boundary : forgotten_) {
    spdlog::warn("run {}: the message buffers of boundary {} begin anew", run_id_, boundary);
    // The stage below tells of it, so that there is one event.
    if (boundary == stage()) continue;
    v1::WorkerMessage message;
    v1::LinkEvent* event = message.mutable_link();
    event->set_boundary(boundary);
    event->set_peer_stage(boundary);
    event->set_state("forgotten");
    Report(std::move(message));
  }
}

StatusOr<std::shared_ptr<BoundaryPort>> StageRun::OpenPort(
    bool upstream, std::shared_ptr<BoundaryMessages> messages, Deadline deadline) {
  const v1::Plan& plan = assign_.plan();
  const uint32_t boundary = upstream ? stage() - 1 : stage();
  const v1::StagePlan& peer = plan.stages(static_cast<int>(upstream ? stage() - 1 : stage() + 1));
  const v1::LinkPlan& link = plan.links(static_cast<int>(boundary));
  const auto transport = resources_.transports.find(link.transport());
  if (transport == resources_.transports.end()) {
    return absl::FailedPreconditionError(
        fmt::format("the plan's link to stage {} is to go over {}, on which this worker does not "
                    "listen; start it with --transport {}",
                    peer.stage(), link.transport(), link.transport()));
  }
  LH_ASSIGN_OR_RETURN(auto forward, PortCodec(spec_, link.forward_codec()));
  LH_ASSIGN_OR_RETURN(auto backward, PortCodec(spec_, link.backward_codec()));
  // By value: the link's loop may call it after this object has gone.
  const auto on_health = [send = resources_.send, run_id = run_id_, epoch = epoch(), boundary,
                          peer_stage = peer.stage()](const LinkHealth& health) {
    v1::WorkerMessage message;
    message.set_run_id(run_id);
    message.set_epoch(epoch);
    v1::LinkEvent* event = message.mutable_link();
    event->set_boundary(boundary);
    event->set_peer_stage(peer_stage);
    event->set_state(std::string(health.state));
    event->set_silence_seconds(absl::ToDoubleSeconds(health.silence));
    event->set_reason(std::string(Message(health.reason)));
    event->set_frames_resent(health.frames_resent);
    send(std::move(message));
  };
  const auto& send_codec = upstream ? backward : forward;
  const auto& receive_codec = upstream ? forward : backward;
  LH_ASSIGN_OR_RETURN(
      auto codec, CreateBoundaryCodec(GpuOf(spec_, resources_.gpu), {.shape = BoundaryShape(spec_),
                                                                     .send = send_codec,
                                                                     .receive = receive_codec}));
  const LinkCredits credits(
      upstream ? link.forward_bits_per_second() : link.backward_bits_per_second(),
      absl::Seconds(link.forward_latency_seconds() + link.backward_latency_seconds()),
      upstream ? link.forward_bytes() : link.backward_bytes());
  auto channel = BoundaryPort::Create(
      {.run = RunId(run_id_),
       .epoch = Epoch(epoch()),
       .boundary = EdgeId(boundary),
       .upstream = upstream,
       .seed = spec_.train.seed,
       .shape = BoundaryShape(spec_),
       .microbatches = spec_.train.microbatches,
       .validation_microbatches = ValidationMicrobatches(spec_, plan.data().validation_tokens()),
       .send_codec = send_codec,
       .receive_codec = receive_codec,
       .codec = std::move(codec),
       .dump = resources_.dump.has_value()
                   ? std::make_shared<const BoundaryDump>(*resources_.dump, RunId(run_id_))
                   : nullptr,
       .messages = std::move(messages),
       .credits = credits,
       .trace = trace_,
       .on_health = on_health},
      resources_.codec_thread, events_);

  // The answer may come after this call has given up, so it owns what it fills in.
  struct Answer {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<StatusOr<std::shared_ptr<transport::Link>>> link;
  };
  auto answer = std::make_shared<Answer>();
  const auto done = [answer](StatusOr<std::shared_ptr<transport::Link>> opened) {
    const std::lock_guard lock(answer->mutex);
    answer->link = std::move(opened);
    answer->changed.notify_all();
  };
  const transport::LinkKey key{RunId(run_id_), Epoch(epoch()), EdgeId(boundary)};
  const transport::LinkOptions options{.peer_timeout = spec_.peer_timeout,
                                       .credits = credits.count()};
  // The downstream side dials where the plan says so: `upstream` here means that the peer is
  // upstream.
  if (link.downstream_dials() == upstream) {
    std::vector<std::string> addresses;
    for (const v1::DataEndpoint& endpoint : peer.endpoints()) {
      if (endpoint.transport() != link.transport()) continue;
      addresses.assign(endpoint.addresses().begin(), endpoint.addresses().end());
    }
    const std::lock_guard lock(mutex_);  // Readdress comes before or after, not between
    if (const auto moved = moved_.find(boundary); moved != moved_.end()) addresses = moved->second;
    transport->second->Dial(addresses, key, assign_.link_secret(), channel, options, deadline,
                            done);
  } else {
    transport->second->Expect(key, assign_.link_secret(), channel, options, deadline, done);
  }
  std::unique_lock lock(answer->mutex);
  while (!answer->link) {
    answer->changed.wait_for(lock, std::chrono::milliseconds(100));
    if (!answer->link && Cancelled()) return absl::CancelledError("the run was dropped");
  }
  if (!answer->link->ok()) {
    return Annotate(answer->link->status(),
                    fmt::format("link to stage {} on worker {}", peer.stage(), peer.worker_name()));
  }
  channel->Attach(**answer->link);
  return channel;
}

void StageRun::SayReady() {
  v1::WorkerMessage message;
  message.mutable_stage_ready()->set_parameters(model_->parameter_count());
  message.mutable_stage_ready()->set_start_step(assign_.plan().start_step());
  Report(std::move(message));
}

void StageRun::RepeatReady() {
  {
    const std::lock_guard lock(mutex_);
    if (!ready_) return;
  }
  SayReady();
}

Status StageRun::WaitForStart() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ || cancelled_; });
  return cancelled_ ? absl::CancelledError(*cancelled_) : absl::OkStatus();
}

void StageRun::Start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  changed_.notify_all();
}

void StageRun::RequestStop() {
  events_->Push(StopRequested{});
}
void StageRun::RequestCheckpoint() {
  events_->Push(CheckpointRequested{});
}

void StageRun::RequestRetune(const v1::Retune& retune) {
  RetuneRequested request{retune.retune(), retune.depth(), std::nullopt};
  if (retune.has_activation_lead()) request.activation_lead = retune.activation_lead();
  events_->Push(request);
}

void StageRun::Readdress(const v1::Readdress& moved) {
  const uint32_t boundary = moved.boundary();
  if (boundary >= static_cast<uint32_t>(assign_.plan().links_size())) return;
  const auto transport =
      resources_.transports.find(assign_.plan().links(static_cast<int>(boundary)).transport());
  if (transport == resources_.transports.end()) return;
  const std::lock_guard lock(mutex_);
  std::vector<std::string>& addresses = moved_[boundary];
  addresses.assign(moved.addresses().begin(), moved.addresses().end());
  transport->second->Readdress({RunId(run_id_), Epoch(epoch()), EdgeId(boundary)}, addresses);
}

void StageRun::Cancel(std::string reason, bool finished) {
  events_->Push(AbortRequested{absl::CancelledError(reason)});
  const std::lock_guard lock(mutex_);
  if (!cancelled_) {
    cancelled_ = std::move(reason);
    all_finished_ = finished;
  }
  changed_.notify_all();
}

bool StageRun::AllFinished() const {
  const std::lock_guard lock(mutex_);
  return all_finished_;
}

bool StageRun::Cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_.has_value();
}

}  // namespace longhaul::worker
