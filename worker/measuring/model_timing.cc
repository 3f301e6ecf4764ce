#include "worker/measuring/model_timing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "codec/ladder.h"
#include "codec/messages/memory_store.h"
#include "codec/python/host.h"
#include "run/boundary/boundary_shape.h"
#include "run/boundary/open_codecs.h"
#include "run/plan/plan.h"
#include "run/plan/proto/plan_proto.h"
#include "worker/measuring/device_turn.h"
#include "worker/measuring/stage_options.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/stage/noise.h"

namespace longhaul::worker {
namespace {

// Seconds of encoding and decoding the boundary tensors of a microbatch, normal-like numbers: lower
// quartiles, as of the layers.
struct CodecTimes {
  double encode = 0, decode = 0;
};
// Noise where the stages' tensors are.
StatusOr<BoundaryTensor> NoiseAt(const std::optional<cuda::Device>& gpu,
                                 const codec::Shape& shape) {
  LH_ASSIGN_OR_RETURN(const auto plain, CodecSpec("none").Get());
  const BoundaryCodecOptions options{.shape = shape, .send = plain, .receive = plain};
  const BoundaryTensor noise = NoiseTensor(shape);
  LH_ASSIGN_OR_RETURN(const EncodedBlob bytes,
                      BoundaryCodec::Create(options)->Encode(noise.view, {}));
  LH_ASSIGN_OR_RETURN(const auto there, CreateBoundaryCodec(gpu, options));
  LH_ASSIGN_OR_RETURN(const BlobBuffer blob, there->NewBlob(bytes.bytes));
  std::memcpy(blob.bytes.data(), bytes.buffer.bytes.data(), bytes.bytes);
  return there->Decode(blob.bytes.first(bytes.bytes), {});
}

// Tokens that come as if of a text: some often, most seldom.
std::vector<uint32_t> AnyTokens(const codec::Shape& shape, uint32_t vocabulary) {
  std::vector<uint32_t> ids(uint64_t{shape.samples} * shape.tokens);
  uint32_t state = 1;
  for (uint32_t& id : ids) {
    state = state * 1664525 + 1013904223;
    const uint32_t below = 1 + (state >> 16) % std::max(vocabulary, 1u);
    state = state * 1664525 + 1013904223;
    id = (state >> 16) % below;
  }
  return ids;
}

StatusOr<CodecTimes> MeasureCodec(const CodecSpec& spec, const codec::Shape& shape,
                                  uint32_t vocabulary, const std::optional<cuda::Device>& gpu,
                                  const codec::python::Host* python_codecs) {
  LH_ASSIGN_OR_RETURN(const auto codec, spec.Get());
  // Two: a class of Python may have state.
  LH_ASSIGN_OR_RETURN(const auto sender, codec::python::Ready(python_codecs, codec));
  LH_ASSIGN_OR_RETURN(const auto receiver, codec::python::Ready(python_codecs, codec));
  LH_ASSIGN_OR_RETURN(const BoundaryTensor in, NoiseAt(gpu, shape));
  LH_ASSIGN_OR_RETURN(
      const auto boundary,
      CreateBoundaryCodec(
          gpu, {.shape = shape, .send = sender, .receive = receiver, .vocabulary = vocabulary}));
  // A codec with state is as fast as it is once it has seen the samples: the first time is not
  // counted.
  codec::MemoryStore sent(shape.samples, codec->MessageBytes(shape));
  codec::MemoryStore received(shape.samples, codec->MessageBytes(shape));
  std::vector<uint64_t> ids(shape.samples);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  const bool remembers = codec->MessageBytes(shape) > 0;
  const std::vector<uint32_t> tokens = AnyTokens(shape, vocabulary);
  const auto context_with = [&](codec::MessageStore& store) {
    codec::Context context;
    if (boundary->predicts()) context.token_ids = tokens;
    context.learns = boundary->predicts();
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
    encode.push_back(absl::ToDoubleSeconds(middle - begin));
    decode.push_back(absl::ToDoubleSeconds(Now() - middle));
  }
  std::sort(encode.begin(), encode.end());
  std::sort(decode.begin(), decode.end());
  return CodecTimes{encode[kRepeats / 4], decode[kRepeats / 4]};
}

// For others that share the GPU, a few seconds each.
constexpr absl::Duration kMeasuringPatience = absl::Seconds(60);

// Measured now, or elsewhere and in the run file.
StatusOr<CodecTimes> TimesOfCodec(const RunSpec& spec, const CodecSpec& codec, uint32_t vocabulary,
                                  const std::optional<cuda::Device>& gpu, Direction direction,
                                  const codec::python::Host* python_codecs) {
  if (spec.replay && !spec.replay->real_codecs) {
    const ReplaySpec::CodecTimes* times = spec.replay->TimesOf(codec);
    if (times == nullptr) {
      return InvalidArgument("expected replay.codec_times of {}, got none", ToString(codec));
    }
    return CodecTimes{absl::ToDoubleSeconds(times->encode), absl::ToDoubleSeconds(times->decode)};
  }
  LH_ASSIGN_OR_RETURN(CodecTimes times, MeasureCodec(codec, SliceShape(spec, direction), vocabulary,
                                                     GpuOf(spec, gpu), python_codecs));
  times.encode *= spec.pipeline.SlicesNow();
  times.decode *= spec.pipeline.SlicesNow();
  return times;
}

StatusOr<v1::LayerTimes> MeasureLayers(const RunSpec& spec, uint32_t vocabulary,
                                       const std::optional<cuda::Device>& gpu) {
  StageOptions options = StageOptionsFor(spec, vocabulary, {0, spec.model.layers}, {true, true},
                                         spec.pipeline.threads_per_stage, gpu);
  options.shares_step = false;  // the optimizer is timed, too
  LH_ASSIGN_OR_RETURN(const MeasuredLayerTimes layers, MeasureLayerTimes(options));
  v1::LayerTimes times;
  times.set_embedding_forward(layers.embedding.forward);
  times.set_embedding_backward(layers.embedding.backward);
  times.set_block_forward(layers.block.forward);
  times.set_block_backward(layers.block.backward);
  times.set_head_forward(layers.head.forward);
  times.set_head_backward(layers.head.backward);
  times.set_optimizer_seconds_per_parameter(layers.optimizer_seconds_per_parameter);
  return times;
}

// The devices that a group may take, in order: all of the first one's kind.
std::vector<WorkerDevice> OfFirstKind(std::span<const WorkerDevice> devices) {
  std::vector<WorkerDevice> alike;
  for (const WorkerDevice& device : devices) {
    if (device.description.kind() == devices.front().description.kind()) alike.push_back(device);
  }
  return alike;
}

v1::GroupPass ToProto(const MeasuredPass& pass) {
  v1::GroupPass out;
  out.set_forward(pass.forward);
  out.set_backward(pass.backward);
  *out.mutable_sent() = longhaul::ToProto(pass.sent);
  if (pass.collective_seconds) out.set_collective_seconds(*pass.collective_seconds);
  return out;
}

// The stage as that group, of the first devices of `alike`.
StatusOr<v1::GroupTimes> MeasureGroup(const RunSpec& spec, const GroupSpec& group,
                                      uint32_t vocabulary, std::span<const WorkerDevice> alike,
                                      const MakeStage& make_group) {
  RunSpec of_group = spec;
  of_group.group = group;
  const uint32_t ranks = group.tensor;
  uint32_t cores = 0;
  std::vector<DeviceName> names;
  for (const WorkerDevice& device : alike) {
    if (!device.gpu) cores += device.description.cores();
    if (names.size() < ranks) names.push_back(device.name());
  }
  const uint32_t threads = ThreadsOfRank(spec.pipeline.threads_per_stage, ranks, cores);
  LH_ASSIGN_OR_RETURN(
      const MeasuredLayerTimes layers,
      MeasureLayerTimes(StageOptionsFor(of_group, vocabulary, {0, spec.model.layers}, {true, true},
                                        threads, alike.front().gpu, std::move(names)),
                        make_group));
  v1::GroupTimes times;
  times.set_tensor(ranks);
  times.set_expert(group.expert);
  times.set_threads(threads);
  *times.mutable_embedding() = ToProto(layers.embedding);
  *times.mutable_block() = ToProto(layers.block);
  *times.mutable_head() = ToProto(layers.head);
  if (layers.ends) *times.mutable_ends() = ToProto(*layers.ends);
  times.set_optimizer_seconds_per_parameter(layers.optimizer_seconds_per_parameter);
  times.set_forward_collective(layers.forward_collective);
  times.set_backward_collective(layers.backward_collective);
  return times;
}

// A group that the run file asks for has to work; of several each may.
Status AddGroups(const RunSpec& spec, uint32_t vocabulary, std::span<const WorkerDevice> alike,
                 const MakeStage& make_group, v1::LayerTimes* times) {
  const auto offered = static_cast<uint32_t>(alike.size());
  for (const GroupSpec& group : config::GroupsLeftOpen(spec, offered)) {
    // A group of more ranks than this worker has devices is not timed: the coordinator refuses it.
    if (group.tensor == 1 || group.tensor > offered) continue;
    const StatusOr<v1::GroupTimes> measured =
        MeasureGroup(spec, group, vocabulary, alike, make_group);
    if (measured.ok()) {
      *times->add_groups() = *measured;
      continue;
    }
    const bool cannot = absl::IsInvalidArgument(measured.status()) ||
                        absl::IsFailedPrecondition(measured.status()) ||
                        absl::IsResourceExhausted(measured.status());
    if (!spec.group.is_auto() || !cannot) {
      return Annotate(measured.status(), fmt::format("{} ranks", group.tensor));
    }
    v1::GroupTimes& refused = *times->add_groups();
    refused.set_tensor(group.tensor);
    refused.set_expert(group.expert);
    refused.set_refused(std::string(Message(measured.status())));
  }
  return absl::OkStatus();
}

// On all GPUs that are used, in the order of their numbers, as others take them.
std::vector<UniqueFd> TakeTurns(const RunSpec& spec, std::span<const WorkerDevice> alike) {
  std::vector<UniqueFd> turns;
  if (!alike.front().gpu || (spec.replay && !spec.replay->real_codecs)) return turns;
  const size_t used =
      spec.group.tensor_auto ? alike.size() : std::min<size_t>(spec.group.tensor, alike.size());
  std::vector<int> numbers;
  for (const WorkerDevice& device : alike.first(used)) numbers.push_back(device.gpu->index());
  std::sort(numbers.begin(), numbers.end());
  for (const int number : numbers) {
    turns.push_back(TakeTurn(fmt::format("/dev/nvidia{}", number), kMeasuringPatience));
  }
  return turns;
}

// As ReplayStage sleeps. The optimizer's is the plan's to reckon. Those of a group are the same:
// they were measured of all its ranks together.
v1::LayerTimes ReplayedTimes(const RunSpec& spec) {
  const ReplaySpec& replay = *spec.replay;
  const auto seconds = [](absl::Duration time) { return absl::ToDoubleSeconds(time); };
  v1::LayerTimes times;
  times.set_embedding_forward(seconds(replay.embedding_forward));
  times.set_embedding_backward(seconds(replay.embedding_backward));
  times.set_block_forward(seconds(replay.block_forward));
  times.set_block_backward(
      seconds(replay.block_backward) +
      (spec.pipeline.recompute != Recompute::kNone ? seconds(replay.block_forward) : 0));
  times.set_head_forward(seconds(replay.head_forward));
  times.set_head_backward(seconds(replay.head_backward));
  if (spec.group.tensor == 1) return times;
  v1::GroupTimes& group = *times.add_groups();
  group.set_tensor(spec.group.tensor);
  group.set_expert(spec.group.expert);
  group.set_threads(spec.pipeline.threads_per_stage);
  const auto set = [](double forward, double backward, v1::GroupPass* pass) {
    pass->set_forward(forward);
    pass->set_backward(backward);
  };
  set(times.embedding_forward(), times.embedding_backward(), group.mutable_embedding());
  set(times.block_forward(), times.block_backward(), group.mutable_block());
  set(times.head_forward(), times.head_backward(), group.mutable_head());
  return times;
}

// Whether the plan chooses some worker's codec of that direction.
bool IsLeftOpen(const LinksSpec& links, CodecSpec CodecPair::*codec) {
  return IsAuto(links.codecs.*codec) ||
         std::ranges::any_of(links.by_worker, [codec](const auto& exception) {
           return IsAuto(exception.second.codecs.*codec);
         });
}

// The run's own codecs, and those that the plan may choose where the run leaves them open.
Status AddCodecs(const RunSpec& spec, uint32_t vocabulary, const std::optional<cuda::Device>& gpu,
                 const codec::python::Host* python_codecs, v1::LayerTimes* times) {
  const auto time = [&](const CodecSpec& codec, Direction direction) {
    return TimesOfCodec(spec, codec, vocabulary, gpu, direction, python_codecs);
  };
  const auto add_all = [&](const RunSpec& of, Direction direction) -> Status {
    for (const codec::Rung& rung : OpenCodecs(of, direction)) {
      const std::string& name = ToString(rung.codec);
      const bool is_known =
          std::ranges::find(times->codecs(), name, &v1::CodecTimes::codec) != times->codecs().end();
      if (is_known) continue;
      const StatusOr<CodecTimes> measured = time(rung.codec, direction);
      // Tables of tokens may have no room here. Whether they have where the run trains is for the
      // plan to reckon.
      if (absl::IsResourceExhausted(measured.status()) && rung.codec.predicts_by_tokens()) continue;
      LH_ASSIGN_OR_RETURN(const CodecTimes one, measured);
      v1::CodecTimes& added = *times->add_codecs();
      added.set_codec(name);
      added.set_encode(one.encode);
      added.set_decode(one.decode);
    }
    return absl::OkStatus();
  };
  const CodecPair& codecs = spec.links.codecs;
  if (!IsAuto(codecs.forward)) {
    LH_ASSIGN_OR_RETURN(const CodecTimes forward, time(codecs.forward, Direction::kForward));
    times->set_forward_encode(forward.encode);
    times->set_forward_decode(forward.decode);
  }
  if (!IsAuto(codecs.backward)) {
    LH_ASSIGN_OR_RETURN(const CodecTimes backward, time(codecs.backward, Direction::kBackward));
    times->set_backward_encode(backward.encode);
    times->set_backward_decode(backward.decode);
  }
  if (IsLeftOpen(spec.links, &CodecPair::forward)) {
    LH_RETURN_IF_ERROR(add_all(spec, Direction::kForward));
    RunSpec without = spec;  // for plans whose memory has no room for tables of tokens
    without.links.predicts = false;
    LH_RETURN_IF_ERROR(add_all(without, Direction::kForward));
  }
  if (IsLeftOpen(spec.links, &CodecPair::backward)) return add_all(spec, Direction::kBackward);
  return absl::OkStatus();
}

}  // namespace

StatusOr<v1::LayerTimes> MeasureModel(const RunSpec& spec, uint32_t vocabulary,
                                      std::span<const WorkerDevice> devices,
                                      const MakeStage& make_group,
                                      const codec::python::Host* python_codecs) {
  const MonoTime asked = Now();
  const std::optional<cuda::Device>& gpu = devices.front().gpu;
  const std::vector<WorkerDevice> alike = OfFirstKind(devices);
  const std::vector<UniqueFd> turns = TakeTurns(spec, alike);
  const MonoTime begin = Now();
  LH_ASSIGN_OR_RETURN(v1::LayerTimes times,
                      spec.replay ? ReplayedTimes(spec) : MeasureLayers(spec, vocabulary, gpu));
  times.set_threads(spec.pipeline.threads_per_stage);
  if (!spec.replay) LH_RETURN_IF_ERROR(AddGroups(spec, vocabulary, alike, make_group, &times));
  LH_RETURN_IF_ERROR(AddCodecs(spec, vocabulary, gpu, python_codecs, &times));
  times.set_seconds_waited(absl::ToDoubleSeconds(begin - asked));
  times.set_seconds_taken(absl::ToDoubleSeconds(Now() - begin));
  return times;
}

}  // namespace longhaul::worker
