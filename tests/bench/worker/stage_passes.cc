// Seconds of a stage's steps, forward and backward of its layers, asked for line by line: so that a
// program can take turns between this and something else that it compares
// (tests/bench/e2e/stage_eager.py).
//
// Standard input, JSON, first {"run": a run file, "layers", "last": with norm, head and loss after
// them, "device", "threads", "graphs": on a GPU whether passes are recorded}: a stage of so many of
// the model's layers, not the first; answered by {"parameters"}. "devices" instead of "device": a
// group with a rank on each, "collectives" (none, taco, zip) are those of its sums, or "free"
// or "bounded" (bench_communicators.h); "p" is the share of channels that they sum, "sequence" as
// in a run file; "path" is nccl or mapped (communicators.h), by default the best. "timing_only":
// parameters are any numbers, made in no time. "experts": into so many parts a group divides them;
// "documents": tokens of each document, within which attention stays.
// "zipf": routers send tokens to experts by Zipf's law with that exponent. Then for every {"steps"}
// {"seconds": of each, "experts": of each block the most tokens of an expert over the mean}. A step
// is train.microbatches times forward and backward; the optimizer's, with the casts of weights,
// comes once after all of them and does not count. For every
// {"snapshots"} {"seconds": of each, "bytes": of one}: of the stage's state, as for a checkpoint.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench_communicators.h"
#include "run/boundary/boundary_shape.h"
#include "run/file/run_spec.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using nlohmann::json;

// The first channel of every token, by which a router's first column is multiplied, nearly.
constexpr double kFirstChannel = 8;
constexpr std::string_view kFree = "free", kBounded = "bounded";

GroupPath PathOf(const json& job) {
  const std::string path = job.value("path", "");
  if (path == "nccl") return GroupPath::kNccl;
  return path == "mapped" ? GroupPath::kMapped : GroupPath::kBest;
}

class TimedStage {
 public:
  static StatusOr<TimedStage> Create(const json& job) {
    LH_ASSIGN_OR_RETURN(RunSpec spec, ParseRunSpec(job.at("run").dump(), "the job", {}));
    // As a plan settles it for CPUs.
    if (spec.train.dtype == ComputeDtype::kAuto) spec.train.dtype = ComputeDtype::kFp32;
    StageOptions options;
    options.model = spec.model;
    options.train = spec.train;
    options.layers = job.at("layers");
    options.first = false;
    options.last = job.at("last");
    if (options.last) options.first_layer = options.model.layers - options.layers;
    options.vocabulary = options.vocabulary_rows();
    options.threads = job.at("threads");
    options.graphs = job.at("graphs");
    options.timing_only = job.value("timing_only", false);
    options.masked_attention = job.contains("documents");
    options.recompute = spec.pipeline.recompute;
    const double zipf = job.value("zipf", 0.0);
    options.loads = zipf > 0;
    const bool of_group = job.contains("devices");
    LH_ASSIGN_OR_RETURN(
        const std::vector<DeviceName> devices,
        ParseDeviceNames(job.at(of_group ? "devices" : "device").get<std::string>()));
    options.device = devices.front();
    if (of_group) {
      options.ranks = devices;
      options.group = GroupOf(job);
      options.group.tensor = static_cast<uint32_t>(devices.size());
    }
    if (options.device.cuda_index) LH_RETURN_IF_ERROR(LoadTorchCuda(DefaultTorchCudaPath()));
    MakeCommunicators communicators = CommunicatorsFor(options, "", PathOf(job));
    if (CollectivesOf(job) == kFree) communicators = testing::WithoutSums(std::move(communicators));
    if (CollectivesOf(job) == kBounded) {
      communicators = testing::WithBoundedZip(std::move(communicators));
    }
    LH_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage,
                        of_group ? MakeGroupStage(options, communicators) : Stage::Create(options));
    if (zipf > 0) LH_RETURN_IF_ERROR(stage->Load(RoutedByZipf(options.model, zipf)));
    at::Tensor boundary;
    LH_RETURN_IF_ERROR(CallTorch("the boundary tensor", options.threads, [&]() -> Status {
      boundary = Boundary(options);
      return absl::OkStatus();
    }));
    return TimedStage(options, std::move(stage), std::move(boundary),
                      job.value("documents", size_t{0}));
  }

  uint64_t parameter_count() const { return stage_->parameter_count(); }

  StatusOr<double> StepSeconds() {
    const codec::TensorView view{boundary_.const_data_ptr(), codec::Dtype::kF32,
                                 BoundaryShape(options_.model, options_.train, options_.group)};
    const Stage::Input input{.tokens = {},
                             .activation = view,
                             .targets = options_.last ? targets_ : std::span<const int32_t>(),
                             .documents = documents_};
    const MonoTime start = Now();
    for (uint32_t i = 0; i < options_.train.microbatches; ++i, ++microbatch_) {
      LH_RETURN_IF_ERROR(stage_->Forward(Microbatch(microbatch_), input).status());
      LH_RETURN_IF_ERROR(stage_->Backward(Microbatch(microbatch_), view).status());
    }
    return absl::ToDoubleSeconds(Now() - start);
  }
  Status Update() { return stage_->OptimizerStep(Step(++step_), options_.train.optimizer.lr, 1); }

  // The busiest expert's tokens over the mean, in the last step.
  std::vector<double> MostOverMean() const {
    std::vector<double> of_blocks;
    for (const std::vector<int64_t>& tokens : stage_->TokensOfExperts()) {
      const auto sum = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
      of_blocks.push_back(static_cast<double>(std::ranges::max(tokens)) *
                          static_cast<double>(tokens.size()) / static_cast<double>(sum));
    }
    return of_blocks;
  }

  struct TimedSnapshot {
    double seconds = 0;
    size_t bytes = 0;
  };
  StatusOr<TimedSnapshot> TakeSnapshot() const {
    const MonoTime start = Now();
    LH_ASSIGN_OR_RETURN(const StageSnapshot snapshot, stage_->Snapshot());
    TimedSnapshot timed{.seconds = absl::ToDoubleSeconds(Now() - start)};
    for (const std::vector<NamedArray>* arrays : {&snapshot.parameters, &snapshot.moments}) {
      for (const NamedArray& array : *arrays) timed.bytes += array.values.size() * sizeof(float);
    }
    return timed;
  }

 private:
  // `document`: the tokens of each; 0: a row is one.
  TimedStage(StageOptions options, std::unique_ptr<Stage> stage, at::Tensor boundary,
             size_t document)
      : options_(std::move(options)), stage_(std::move(stage)), boundary_(std::move(boundary)) {
    targets_.resize(size_t{options_.train.microbatch_size} * options_.model.context);
    for (size_t i = 0; i < targets_.size(); ++i) {
      targets_[i] = static_cast<int32_t>(i * 37 % options_.vocabulary);
      if (document == 0) continue;
      documents_.push_back(static_cast<int32_t>(i % options_.model.context / document));
    }
  }

  static std::string CollectivesOf(const json& job) { return job.value("collectives", "none"); }
  static GroupSpec GroupOf(const json& job) {
    const std::string name = CollectivesOf(job);
    GroupSpec group;
    group.expert = job.value("experts", 1u);
    group.sequence = job.value("sequence", false);
    group.shared_channels = job.value("p", 1.0);
    // The benchmark's own names, as "free", are none of a run file: they begin with none.
    std::vector<std::string> problems;
    group.forward = group.backward = ReadGroupCompression(name, &problems);
    return group;
  }

  // Normal numbers on the stage's device, but for the first channel, which is the same in all
  // tokens.
  static at::Tensor Boundary(const StageOptions& options) {
    const codec::Shape shape = BoundaryShape(options.model, options.train, options.group);
    const at::Tensor values = at::empty({int64_t{shape.samples} * shape.tokens, shape.channels})
                                  .normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(1));
    values.select(1, 0).fill_(kFirstChannel);
    return values.flatten().to(TorchDevice(options.device));
  }

  // Weights so that a router's score of an expert is the logarithm of its share, and noise.
  static ReadParameter RoutedByZipf(const ModelSpec& model, double exponent) {
    const at::Tensor noise =
        at::empty({1 << 22}).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(2));
    return [noise, exponent, hidden = size_t{model.hidden}](const model::PlacedParameter& parameter,
                                                            std::span<float> values) {
      const std::string name = parameter.Name();
      const bool is_router = name.ends_with("mlp.gate.weight");
      if (!parameter.parameter.shape.is_matrix()) {
        std::ranges::fill(values, name.ends_with("norm.weight") ? 1.0f : 0.0f);
        return absl::OkStatus();
      }
      const float* const from = noise.const_data_ptr<float>();
      const size_t period = static_cast<size_t>(noise.numel());
      const size_t offset = std::hash<std::string>()(name) % period;
      // A score's noise deviates as Gumbel's, with which the highest scores are draws by share.
      const auto scale = static_cast<float>(is_router ? 1.28 / std::sqrt(hidden) : 0.02);
      for (size_t i = 0; i < values.size(); ++i) values[i] = scale * from[(offset + i) % period];
      for (size_t expert = 0; is_router && expert * hidden < values.size(); ++expert) {
        const auto place = static_cast<double>(expert * 37 % (values.size() / hidden) + 1);
        values[expert * hidden] = static_cast<float>(-exponent * std::log(place) / kFirstChannel);
      }
      return absl::OkStatus();
    };
  }

  StageOptions options_;
  std::unique_ptr<Stage> stage_;
  at::Tensor boundary_;
  std::vector<int32_t> targets_, documents_;
  uint64_t step_ = 0;
  uint32_t microbatch_ = 0;  // since the last update
};

void Print(const json& answer) {
  fmt::print("{}\n", answer.dump());
  std::fflush(stdout);
}

Status Serve() {
  std::string line;
  std::getline(std::cin, line);
  LH_ASSIGN_OR_RETURN(TimedStage stage, TimedStage::Create(json::parse(line)));
  Print({{"parameters", stage.parameter_count()}});
  while (std::getline(std::cin, line)) {
    const json job = json::parse(line);
    if (job.contains("snapshots")) {
      std::vector<double> seconds;
      size_t bytes = 0;
      for (size_t left = job.at("snapshots"); left > 0; --left) {
        LH_ASSIGN_OR_RETURN(const auto timed, stage.TakeSnapshot());
        seconds.push_back(timed.seconds);
        bytes = timed.bytes;
      }
      Print({{"seconds", seconds}, {"bytes", bytes}});
      continue;
    }
    std::vector<double> seconds(job.at("steps").get<size_t>());
    for (double& step : seconds) {
      LH_ASSIGN_OR_RETURN(step, stage.StepSeconds());
    }
    LH_RETURN_IF_ERROR(stage.Update());
    Print({{"seconds", seconds}, {"experts", stage.MostOverMean()}});
  }
  return absl::OkStatus();
}

int Main() {
  Status served;
  try {
    served = Serve();
  } catch (const json::exception& error) {
    served = absl::InvalidArgumentError(error.what());
  }
  if (served.ok()) return 0;
  fmt::print(stderr, "stage_passes: {}\n", Message(served));
  return 1;
}

}  // namespace
}  // namespace longhaul::worker

int main() {
  return longhaul::worker::Main();
}
