// What the verification of a run costs a middle stage, as parts of its step: digests of the state
// before and after the update, and for each message over its two edges a digest and, of those that
// arrive, a judgement and, for audits, a recording. A step is forwards, backwards and the
// optimizer's, without waiting. Digests of messages, judgements and recordings run on the codec
// thread beside the step, so their part is what they would take if nothing ran beside.
//
//   verify_bench --hidden 512 --layers 4 --context 512 --microbatch-size 4 --microbatches 8
//   verify_bench --device cuda:0 --hidden 4096 --layers 8 --context 2048 --codec bf16
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/device_name.h"
#include "codec/registry.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/pipeline/input_recorder.h"
#include "worker/pipeline/message_digests.h"
#include "worker/pipeline/plausibility.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

struct BenchOptions {
  std::string device = "cpu", codec = "none";
  uint32_t layers = 4, hidden = 512, context = 512, microbatch_size = 4, microbatches = 8;
  uint32_t threads = 1, steps = 5;
};

StageOptions StageOf(const BenchOptions& bench, const DeviceName& device) {
  StageOptions options;
  options.model.layers = bench.layers + 2;
  options.model.hidden = bench.hidden;
  options.model.heads = std::max(1u, bench.hidden / 64);
  options.model.context = bench.context;
  options.first = options.last = false;
  options.first_layer = 1;
  options.layers = bench.layers;
  options.train.microbatches = bench.microbatches;
  options.train.microbatch_size = bench.microbatch_size;
  options.train.steps = bench.steps + 1;
  if (device.cuda_index) options.train.dtype = ComputeDtype::kBf16;
  options.threads = bench.threads;
  options.device = device;
  options.timing_only = true;
  return options;
}

double Median(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

template <class Work>
StatusOr<double> SecondsOf(Work work) {
  const MonoTime begin = Now();
  LH_RETURN_IF_ERROR(work());
  return absl::ToDoubleSeconds(Now() - begin);
}

class Bench {
 public:
  Bench(const BenchOptions& options, std::unique_ptr<Stage> stage,
        std::unique_ptr<BoundaryCodec> codec, BoundaryTensor tensor)
      : options_(options),
        stage_(std::move(stage)),
        codec_(std::move(codec)),
        tensor_(std::move(tensor)) {}

  static StatusOr<Bench> Create(const BenchOptions& options) {
    LH_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(options.device));
    std::optional<cuda::Device> gpu;
    if (device.cuda_index) {
      LH_RETURN_IF_ERROR(LoadTorchCuda(DefaultTorchCudaPath()));
      LH_ASSIGN_OR_RETURN(gpu, cuda::Device::Open(*device.cuda_index));
    }
    LH_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, Stage::Create(StageOf(options, device)));
    const codec::Shape shape{options.microbatch_size, options.context, options.hidden};
    LH_ASSIGN_OR_RETURN(const std::shared_ptr<const codec::Codec> codec,
                        codec::ParseCodec(options.codec));
    LH_ASSIGN_OR_RETURN(
        std::unique_ptr<BoundaryCodec> runner,
        CreateBoundaryCodec(gpu, {.shape = shape, .send = codec, .receive = codec}));
    // A tensor on the stage's device: one that was encoded on the host.
    std::vector<float> values(shape.elements());
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    const auto on_host = BoundaryCodec::Create({.shape = shape, .send = codec, .receive = codec});
    LH_ASSIGN_OR_RETURN(const EncodedBlob blob,
                        on_host->Encode({values.data(), codec::Dtype::kF32, shape}, {}));
    LH_ASSIGN_OR_RETURN(const BlobBuffer received, runner->NewBlob(blob.bytes));
    std::memcpy(received.bytes.data(), blob.buffer.bytes.data(), blob.bytes);
    LH_ASSIGN_OR_RETURN(BoundaryTensor tensor,
                        runner->Decode(received.bytes.first(blob.bytes), {}));
    return Bench(options, std::move(stage), std::move(runner), std::move(tensor));
  }

  Status Run() {
    std::vector<double> step, state, xxh3, sha256, judged, recorded;
    InputRecorder recorder(longhaul::Step(0));
    Plausibility plausibility(1);
    LH_ASSIGN_OR_RETURN(const EncodedBlob blob, codec_->Encode(tensor_.view, {}));
    const auto bytes = blob.buffer.bytes.first(blob.bytes);
    for (uint32_t i = 1; i <= options_.steps + 1; ++i) {
      LH_ASSIGN_OR_RETURN(const double of_step, SecondsOf([&] { return Step(i); }));
      LH_ASSIGN_OR_RETURN(const double of_state,
                          SecondsOf([&] { return stage_->StateDigest().status(); }));
      const auto digest = [&](DigestKind kind) {
        return SecondsOf([&]() -> Status {
          kept_ ^= DigestOf(kind, bytes);
          return absl::OkStatus();
        });
      };
      LH_ASSIGN_OR_RETURN(const double of_xxh3, digest(DigestKind::kXxh3));
      LH_ASSIGN_OR_RETURN(const double of_sha256, digest(DigestKind::kSha256));
      LH_ASSIGN_OR_RETURN(
          const double of_judge, SecondsOf([&]() -> Status {
            const codec::Shape& shape = tensor_.view.shape;
            LH_ASSIGN_OR_RETURN(
                const std::vector<float> rows,
                codec_->CopyRows(tensor_.view,
                                 plausibility.DrawRows(size_t{shape.samples} * shape.tokens)));
            plausibility.Judge(rows, shape.channels);
            return absl::OkStatus();
          }));
      // The first message of a step takes its memory.
      LH_ASSIGN_OR_RETURN(const double of_recording, SecondsOf([&]() -> Status {
                            wire::TensorHeader header;
                            header.step = longhaul::Step(i);
                            for (uint32_t m = 0; m < options_.microbatches; ++m) {
                              recorder.Add(header, bytes);
                            }
                            return absl::OkStatus();
                          }));
      recorder.Cut(longhaul::Step(i));
      if (i == 1) continue;  // warms up
      step.push_back(of_step);
      state.push_back(2 * of_state);
      // Both directions of two edges; what arrives is half of it.
      xxh3.push_back(4 * of_xxh3 * options_.microbatches);
      sha256.push_back(4 * of_sha256 * options_.microbatches);
      judged.push_back(2 * of_judge * options_.microbatches);
      recorded.push_back(2 * of_recording);
    }
    const double whole = Median(step);
    fmt::print("{} parameters, messages of {} bytes, {} a step\n", stage_->parameter_count(),
               blob.bytes, 4 * options_.microbatches);
    fmt::print("step                          {:10.3f} ms\n", 1e3 * whole);
    const auto say = [&](const char* what, double seconds) {
      fmt::print("{:29} {:10.3f} ms {:8.3f} % of a step\n", what, 1e3 * seconds,
                 100 * seconds / whole);
    };
    say("state, before and after", Median(state));
    say("messages, xxh3", Median(xxh3));
    say("messages, sha256", Median(sha256));
    say("judgements of what arrives", Median(judged));
    say("recording for audits", Median(recorded));
    say("all, with xxh3", Median(state) + Median(xxh3) + Median(judged));
    say("all, with sha256", Median(state) + Median(sha256) + Median(judged));
    return absl::OkStatus();
  }

 private:
  Status Step(uint32_t number) {
    for (uint32_t i = 0; i < options_.microbatches; ++i) {
      Stage::Input input;
      input.activation = tensor_.view;
      LH_RETURN_IF_ERROR(stage_->Forward(Microbatch(i), input).status());
      LH_RETURN_IF_ERROR(stage_->Backward(Microbatch(i), tensor_.view).status());
    }
    return stage_->OptimizerStep(longhaul::Step(number), 1e-4, 1);
  }

  BenchOptions options_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<BoundaryCodec> codec_;
  BoundaryTensor tensor_;
  uint64_t kept_ = 0;  // so that no digest is left out
};

int Main(int argc, char** argv) {
  BenchOptions options;
  CLI::App app("What the verification of a run costs a stage");
  app.add_option("--device", options.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--codec", options.codec, "codec of messages")->capture_default_str();
  app.add_option("--layers", options.layers, "blocks of the stage")->capture_default_str();
  app.add_option("--hidden", options.hidden, "channels")->capture_default_str();
  app.add_option("--context", options.context, "tokens of a sequence")->capture_default_str();
  app.add_option("--microbatch-size", options.microbatch_size, "sequences")->capture_default_str();
  app.add_option("--microbatches", options.microbatches, "of a step")->capture_default_str();
  app.add_option("--threads", options.threads, "that compute on the CPU")->capture_default_str();
  app.add_option("--steps", options.steps, "that count")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  StatusOr<Bench> bench = Bench::Create(options);
  const Status status = bench.ok() ? bench->Run() : bench.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "verify_bench: {}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  return longhaul::worker::Main(argc, argv);
}
