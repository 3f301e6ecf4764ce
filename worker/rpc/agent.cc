#include "worker/rpc/agent.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/peer_log.h"
#include "codec/messages/memory_store.h"
#include "codec/registry.h"
#include "run/boundary/boundary_shape.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/rpc/device_turn.h"
#include "worker/stage/noise.h"

namespace longhaul::worker {
namespace {

// Seconds of encoding and decoding one boundary tensor of normal-like numbers: lower quartiles, as
// of the layers.
struct CodecTimes {
  double encode = 0, decode = 0;
};
// Noise where the stages' tensors are.
StatusOr<BoundaryTensor> NoiseAt(const std::optional<cuda::Device>& gpu,
                                 const codec::Shape& shape) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<const codec::Codec> plain, codec::ParseCodec("none"));
  const BoundaryCodecOptions options{.shape = shape, .send = plain, .receive = plain};
  const BoundaryTensor noise = NoiseTensor(shape);
  LH_ASSIGN_OR_RETURN(const EncodedBlob bytes,
                      BoundaryCodec::Create(options)->Encode(noise.view, {}));
  LH_ASSIGN_OR_RETURN(const auto there, CreateBoundaryCodec(gpu, options));
  LH_ASSIGN_OR_RETURN(const BlobBuffer blob, there->NewBlob(bytes.bytes));
  std::memcpy(blob.bytes.data(), bytes.buffer.bytes.data(), bytes.bytes);
  return there->Decode(blob.bytes.first(bytes.bytes), {});
}

StatusOr<CodecTimes> MeasureCodec(const std::string& name, const codec::Shape& shape,
                                  const std::optional<cuda::Device>& gpu) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<const codec::Codec> codec, codec::ParseCodec(name));
  LH_ASSIGN_OR_RETURN(const BoundaryTensor in, NoiseAt(gpu, shape));
  LH_ASSIGN_OR_RETURN(const auto boundary,
                      CreateBoundaryCodec(gpu, {.shape = shape, .send = codec, .receive = codec}));
  // A codec with state is as fast as it is once it has seen the samples: the first time is not
  // counted.
  codec::MemoryStore sent(shape.samples, codec->MessageBytes(shape));
  codec::MemoryStore received(shape.samples, codec->MessageBytes(shape));
  std::vector<uint64_t> ids(shape.samples);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  const bool remembers = codec->MessageBytes(shape) > 0;
  const auto context_with = [&](codec::MessageStore& store) {
    codec::Context context;
    if (!remembers) return context;
    context.sample_ids = ids;
    context.messages = &store;
    return context;
  };
  constexpr int kRepeats = 8;
  std::vector<double> encode, decode;
  for (int i = remembers ? -1 : 0; i < kRepeats; ++i) {
    const MonoTime begin = Now();
    LH_ASSIGN_OR_RETURN(const EncodedBlob blob, boundary->Encode(in.view, context_with(sent)));
    const MonoTime middle = Now();
    LH_RETURN_IF_ERROR(
        boundary->Decode(blob.buffer.bytes.first(blob.bytes), context_with(received)).status());
    if (i < 0) continue;
    encode.push_back(absl::ToDoubleSeconds(longhaul::operator-(middle, begin)));
    decode.push_back(absl::ToDoubleSeconds(longhaul::operator-(Now(), middle)));
  }
  std::sort(encode.begin(), encode.end());
  std::sort(decode.begin(), decode.end());
  return CodecTimes{encode[kRepeats / 4], decode[kRepeats / 4]};
}

// For others that share the GPU, a few seconds each.
constexpr absl::Duration kMeasuringPatience = absl::Seconds(60);

// Measured now, or elsewhere and in the run file.
StatusOr<CodecTimes> TimesOfCodec(const RunSpec& spec, const std::string& name,
                                  const std::optional<cuda::Device>& gpu) {
  if (spec.replay && !spec.replay->real_codecs) {
    const ReplaySpec::CodecTimes* times = spec.replay->TimesOf(name);
    if (times == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("expected replay.codec_times of {}, got none", name));
    }
    return CodecTimes{absl::ToDoubleSeconds(times->encode), absl::ToDoubleSeconds(times->decode)};
  }
  return MeasureCodec(name, BoundaryShape(spec), GpuOf(spec, gpu));
}

StatusOr<v1::LayerTimes> MeasureLayers(const RunSpec& spec, uint32_t vocabulary,
                                       const std::optional<cuda::Device>& gpu) {
  LH_ASSIGN_OR_RETURN(
      const MeasuredLayerTimes layers,
      MeasureLayerTimes(StageOptionsFor(spec, vocabulary, 0, spec.model.layers, true, true,
                                        spec.pipeline.threads_per_stage, gpu)));
  v1::LayerTimes times;
  times.set_embedding_forward(layers.embedding_forward);
  times.set_embedding_backward(layers.embedding_backward);
  times.set_block_forward(layers.block_forward);
  times.set_block_backward(layers.block_backward);
  times.set_head_forward(layers.head_forward);
  times.set_head_backward(layers.head_backward);
  times.set_optimizer_seconds_per_parameter(layers.optimizer_seconds_per_parameter);
  return times;
}

// As ReplayStage sleeps. The optimizer's is the plan's to reckon.
v1::LayerTimes ReplayedTimes(const RunSpec& spec) {
  const ReplaySpec& replay = *spec.replay;
  const auto seconds = [](absl::Duration time) { return absl::ToDoubleSeconds(time); };
  v1::LayerTimes times;
  times.set_embedding_forward(seconds(replay.embedding_forward));
  times.set_embedding_backward(seconds(replay.embedding_backward));
  times.set_block_forward(seconds(replay.block_forward));
  times.set_block_backward(seconds(replay.block_backward) +
                           (spec.pipeline.recompute ? seconds(replay.block_forward) : 0));
  times.set_head_forward(seconds(replay.head_forward));
  times.set_head_backward(seconds(replay.head_backward));
  return times;
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
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Agent::IsCurrent(const v1::WorkerCommand& command) const {
  return run_ && run_->run_id() == command.run_id() && run_->epoch() == command.epoch();
}

bool Agent::IsNext(const v1::WorkerCommand& command) const {
  return next_ && next_->run_id() == command.run_id() && next_->epoch() == command.epoch();
}

bool Agent::IsBeingMeasured(const v1::WorkerCommand& command) const {
  return command.has_measure() && measure_ && measure_->run_id() == command.run_id() &&
         measure_->epoch() == command.epoch();
}

void Agent::Handle(v1::WorkerCommand command) {
  if (command.has_drop_checkpoint()) {
    const Status status =
        resources_.shards->Drop(RunId(command.run_id()), Step(command.drop_checkpoint().step()));
    if (!status.ok()) spdlog::warn("cannot delete an old checkpoint: {}", Message(status));
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
  if (command.has_try_reach()) {
    reach_checks_.Handle(command);
    return;
  }
  const std::lock_guard lock(mutex_);
  switch (command.body_case()) {
    case v1::WorkerCommand::kMeasure:
    case v1::WorkerCommand::kProbeLink:
    case v1::WorkerCommand::kAssign:
      HandleWork(std::move(command));
      return;
    case v1::WorkerCommand::kStart:
      if (IsCurrent(command)) run_->Start();
      return;
    case v1::WorkerCommand::kStop:
      if (IsCurrent(command)) run_->RequestStop();
      return;
    case v1::WorkerCommand::kCheckpoint:
      if (IsCurrent(command)) run_->RequestCheckpoint();
      return;
    case v1::WorkerCommand::kRetune:
      if (IsCurrent(command)) run_->RequestRetune(command.retune());
      return;
    case v1::WorkerCommand::kReaddress:
      if (IsCurrent(command)) run_->Readdress(command.readdress());
      if (IsNext(command)) next_moves_.push_back(command.readdress());
      return;
    case v1::WorkerCommand::kAbort:
      if (IsNext(command)) next_.reset();
      if (IsCurrent(command)) {
        run_->Cancel(command.abort().reason(), command.abort().finished());
      }
      if (probe_ && probe_->BelongsTo(command)) probe_->Cancel();
      return;
    default:
      LogAboutPeer(spdlog::level::warn, "coordinator",
                   "a command that this version does not know was left out");
  }
}

void Agent::HandleWork(v1::WorkerCommand command) {
  if (command.has_assign()) {
    // Twice is once.
    if (IsCurrent(command)) {
      run_->RepeatReady();
      return;
    }
    if (run_ && run_->run_id() == command.run_id() && run_->epoch() > command.epoch()) return;
  }
  if (IsBeingMeasured(command)) return;
  if (probe_ && probe_->IsOf(command)) {
    if (probed_) resources_.send(*probed_);
    return;
  }
  if (run_) run_->Cancel("the coordinator has other work");
  if (probe_) probe_->Cancel();
  next_ = std::move(command);
  next_moves_.clear();
  changed_.notify_all();
}

void Agent::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || next_; });
    if (closing_) return;
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
    const auto run = std::make_shared<StageRun>(resources_, command.run_id(), command.assign());
    for (const v1::Readdress& moved : std::exchange(next_moves_, {})) run->Readdress(moved);
    run_ = run;
    traced_ = {run->run_id(), run->epoch(), run->stage(), run->trace()};
    lock.unlock();
    run->Run();
    lock.lock();
    run_.reset();
  }
}

void Agent::SendTrace(const v1::WorkerCommand& command) {
  Traced traced;
  {
    const std::lock_guard lock(mutex_);
    if (traced_.run_id == command.run_id() && traced_.epoch == command.epoch()) traced = traced_;
  }
  v1::WorkerMessage message;
  message.set_run_id(command.run_id());
  message.set_epoch(command.epoch());
  v1::StageTrace& trace = *message.mutable_trace();
  if (traced.log) trace = traced.log->Take(command.send_trace().steps());
  trace.set_stage(traced.stage);
  trace.set_request(command.send_trace().request());
  resources_.send(std::move(message));
}

void Agent::Measure(const v1::WorkerCommand& command) {
  v1::WorkerMessage message;
  message.set_run_id(command.run_id());
  message.set_epoch(command.epoch());
  const StatusOr<v1::LayerTimes> times = MeasureModel(command.measure());
  if (times.ok()) {
    *message.mutable_layer_times() = *times;
  } else {
    message.mutable_error()->set_message(std::string(Message(times.status())));
    message.mutable_error()->set_code(static_cast<int32_t>(times.status().code()));
    message.mutable_error()->set_measuring(true);
  }
  {
    // Before it is said: if that is lost on the way, Measure comes again.
    const std::lock_guard lock(mutex_);
    measure_.reset();
  }
  resources_.send(std::move(message));
}

void Agent::Probe(const std::shared_ptr<LinkProbe>& probe) {
  v1::WorkerMessage message = probe->Run(resources_.transports);
  {
    const std::lock_guard lock(mutex_);
    probed_ = message;
  }
  resources_.send(std::move(message));
}

StatusOr<v1::LayerTimes> Agent::MeasureModel(const v1::Measure& measure) {
  LH_ASSIGN_OR_RETURN(const RunSpec spec,
                      ParseRunSpec(measure.run_yaml(), "run.yaml", {}, codec::CheckCodec));
  const MonoTime asked = Now();
  UniqueFd turn;
  if (resources_.gpu && (!spec.replay || spec.replay->real_codecs)) {
    turn = TakeTurn(fmt::format("/dev/nvidia{}", resources_.gpu->index()), kMeasuringPatience);
  }
  const MonoTime begin = Now();
  LH_ASSIGN_OR_RETURN(v1::LayerTimes times,
                      spec.replay ? ReplayedTimes(spec)
                                  : MeasureLayers(spec, measure.vocabulary(), resources_.gpu));
  times.set_threads(spec.pipeline.threads_per_stage);
  LH_ASSIGN_OR_RETURN(const CodecTimes forward,
                      TimesOfCodec(spec, spec.links.codecs.forward, resources_.gpu));
  LH_ASSIGN_OR_RETURN(const CodecTimes backward,
                      TimesOfCodec(spec, spec.links.codecs.backward, resources_.gpu));
  times.set_forward_encode(forward.encode);
  times.set_forward_decode(forward.decode);
  times.set_backward_encode(backward.encode);
  times.set_backward_decode(backward.decode);
  times.set_seconds_waited(absl::ToDoubleSeconds(longhaul::operator-(begin, asked)));
  times.set_seconds_taken(absl::ToDoubleSeconds(longhaul::operator-(Now(), begin)));
  return times;
}

void Agent::FillHello(v1::Hello* hello) const {
  const std::lock_guard lock(mutex_);
  if (!run_) return;
  hello->set_run_id(run_->run_id());
  hello->set_epoch(run_->epoch());
  hello->set_stage(run_->stage());
}

bool Agent::CurrentRun(std::string* run_id, uint64_t* epoch) const {
  const std::lock_guard lock(mutex_);
  if (!run_) return false;
  *run_id = run_->run_id();
  *epoch = run_->epoch();
  return true;
}

}  // namespace longhaul::worker
