#include "worker/rpc/model_timing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/messages/memory_store.h"
#include "codec/registry.h"
#include "run/boundary/boundary_shape.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/rpc/device_turn.h"
#include "worker/rpc/stage_options.h"
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
      MeasureLayerTimes(StageOptionsFor(spec, vocabulary, {0, spec.model.layers}, {true, true},
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
  times.set_block_backward(
      seconds(replay.block_backward) +
      (spec.pipeline.recompute != Recompute::kNone ? seconds(replay.block_forward) : 0));
  times.set_head_forward(seconds(replay.head_forward));
  times.set_head_backward(seconds(replay.head_backward));
  return times;
}

}  // namespace

StatusOr<v1::LayerTimes> MeasureModel(const RunSpec& spec, uint32_t vocabulary,
                                      const std::optional<cuda::Device>& gpu) {
  const MonoTime asked = Now();
  UniqueFd turn;
  if (gpu && (!spec.replay || spec.replay->real_codecs)) {
    turn = TakeTurn(fmt::format("/dev/nvidia{}", gpu->index()), kMeasuringPatience);
  }
  const MonoTime begin = Now();
  LH_ASSIGN_OR_RETURN(v1::LayerTimes times,
                      spec.replay ? ReplayedTimes(spec) : MeasureLayers(spec, vocabulary, gpu));
  times.set_threads(spec.pipeline.threads_per_stage);
  LH_ASSIGN_OR_RETURN(const CodecTimes forward, TimesOfCodec(spec, spec.links.codecs.forward, gpu));
  LH_ASSIGN_OR_RETURN(const CodecTimes backward,
                      TimesOfCodec(spec, spec.links.codecs.backward, gpu));
  times.set_forward_encode(forward.encode);
  times.set_forward_decode(forward.decode);
  times.set_backward_encode(backward.encode);
  times.set_backward_decode(backward.decode);
  times.set_seconds_waited(absl::ToDoubleSeconds(longhaul::operator-(begin, asked)));
  times.set_seconds_taken(absl::ToDoubleSeconds(longhaul::operator-(Now(), begin)));
  return times;
}

}  // namespace longhaul::worker
