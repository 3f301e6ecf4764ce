// stage_dump RUN.yaml STAGES OUT.safetensors: one microbatch forward and backward through a run's
// model, split over so many stages, for another implementation to compare with (modules_test.py).
//
// The parameters are random and far from what a run begins with, so that attention is not even,
// biases are not 0 and norms are not 1. OUT has them under their names, their gradients as
// "gradient/NAME", and "ids", "targets", "loss", "logits", "boundary/N" and "boundary_gradient/N"
// (N: the stage before it), all as fp32.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "run/file/run_spec.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/init.h"
#include "worker/stage/model/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

constexpr uint64_t kSeed = 20;
constexpr Microbatch kMicrobatch(0);
constexpr std::string_view kExpAvg = ".exp_avg";

StageOptions OptionsOf(const RunSpec& spec, uint32_t stages, uint32_t stage) {
  const uint32_t layers = spec.model.layers / stages;
  StageOptions options;
  options.model = spec.model;
  options.train = spec.train;
  options.train.microbatches = 1;
  options.train.optimizer.beta1 = 0;  // The first moment is then the gradient.
  options.first_layer = stage * layers;
  options.first = stage == 0;
  options.last = stage + 1 == stages;
  options.layers = options.last ? spec.model.layers - options.first_layer : layers;
  return options;
}

StatusOr<StageSnapshot> RandomParameters(const RunSpec& spec) {
  LH_ASSIGN_OR_RETURN(const auto whole, Stage::Create(OptionsOf(spec, 1, 0)));
  LH_ASSIGN_OR_RETURN(StageSnapshot snapshot, whole->Snapshot());
  for (NamedArray& array : snapshot.parameters) {
    std::vector<float> noise(array.values.size());
    FillNormal(kSeed, array.name, 1, noise);
    if (array.shape.size() == 1) {  // A norm's 1 or a bias' 0 and something.
      for (size_t i = 0; i < noise.size(); ++i) array.values[i] += 0.2f * noise[i];
      continue;
    }
    const auto scale = static_cast<float>(1.5 / std::sqrt(static_cast<double>(array.shape[1])));
    for (size_t i = 0; i < noise.size(); ++i) array.values[i] = scale * noise[i];
  }
  return snapshot;
}

NamedArray FromIds(const char* name, const RunSpec& spec, const std::vector<int32_t>& ids) {
  return {name,
          {spec.train.microbatch_size, spec.model.context},
          std::vector<float>(ids.begin(), ids.end())};
}

NamedArray FromView(std::string name, const codec::TensorView& view) {
  const auto* values = static_cast<const float*>(view.data);
  return {std::move(name),
          {view.shape.samples, view.shape.tokens, view.shape.channels},
          {values, values + view.shape.elements()}};
}

// The loss tells nothing of most logits, and a stage keeps them to itself.
StatusOr<NamedArray> LogitsOf(const RunSpec& spec, const StageSnapshot& snapshot,
                              const std::vector<int32_t>& ids) {
  return CallTorch("logits", 1, [&]() -> StatusOr<NamedArray> {
    const at::NoGradGuard no_grad;
    const auto network = Model::Create(OptionsOf(spec, 1, 0));
    for (size_t i = 0; i < network->parameters().size(); ++i) {
      const std::vector<float>& values = snapshot.parameters[i].values;
      std::copy(values.begin(), values.end(), network->parameters()[i].value.data_ptr<float>());
    }
    const at::Tensor input =
        at::from_blob(const_cast<int32_t*>(ids.data()),
                      {spec.train.microbatch_size, spec.model.context}, at::kInt)
            .to(at::kLong);
    const at::Tensor logits = network->Forward(input).contiguous();
    const float* values = logits.const_data_ptr<float>();
    return NamedArray{"logits", logits.sizes().vec(), {values, values + logits.numel()}};
  });
}

StatusOr<std::vector<NamedArray>> Dump(const RunSpec& spec, uint32_t stages) {
  std::vector<int32_t> ids(size_t{spec.train.microbatch_size} * spec.model.context), targets;
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * i * 31 + i * 7) % 256);
  for (size_t i = 0; i < ids.size(); ++i) targets.push_back((ids[i] * 5 + 3) % 256);
  std::vector<NamedArray> out = {FromIds("ids", spec, ids), FromIds("targets", spec, targets)};

  LH_ASSIGN_OR_RETURN(const StageSnapshot snapshot, RandomParameters(spec));
  std::vector<std::unique_ptr<Stage>> chain;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    LH_ASSIGN_OR_RETURN(auto made, Stage::Create(OptionsOf(spec, stages, stage)));
    LH_RETURN_IF_ERROR(made->Restore(snapshot));
    chain.push_back(std::move(made));
  }
  Stage::Input input{ids, {}, targets};
  std::vector<BoundaryTensor> activations;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    LH_ASSIGN_OR_RETURN(auto output, chain[stage]->Forward(kMicrobatch, input));
    if (!output) break;
    out.push_back(FromView(fmt::format("boundary/{}", stage), output->view));
    input.activation = output->view;
    activations.push_back(*std::move(output));
  }
  LH_ASSIGN_OR_RETURN(const double loss, chain.back()->Loss(kMicrobatch));
  out.push_back({"loss", {1}, {static_cast<float>(loss)}});
  LH_ASSIGN_OR_RETURN(NamedArray logits, LogitsOf(spec, snapshot, ids));
  out.push_back(std::move(logits));

  std::optional<BoundaryTensor> gradient;
  for (uint32_t stage = stages; stage-- > 0;) {
    LH_ASSIGN_OR_RETURN(
        gradient,
        chain[stage]->Backward(kMicrobatch, gradient ? gradient->view : codec::TensorView{}));
    if (!gradient) break;
    out.push_back(FromView(fmt::format("boundary_gradient/{}", stage - 1), gradient->view));
  }
  for (const auto& stage : chain) {
    LH_RETURN_IF_ERROR(stage->OptimizerStep(Step(1), 1e-3, 1));
    LH_ASSIGN_OR_RETURN(StageSnapshot after, stage->Snapshot());
    for (NamedArray& moment : after.moments) {
      if (!moment.name.ends_with(kExpAvg)) continue;
      moment.name.resize(moment.name.size() - kExpAvg.size());
      moment.name = "gradient/" + moment.name;
      out.push_back(std::move(moment));
    }
  }
  out.insert(out.end(), snapshot.parameters.begin(), snapshot.parameters.end());
  return out;
}

Status Run(const std::string& run_file, uint32_t stages, const std::string& path) {
  LH_ASSIGN_OR_RETURN(const std::string yaml, ReadFile(run_file));
  LH_ASSIGN_OR_RETURN(RunSpec spec, ParseRunSpec(yaml, run_file, {}));
  // As a plan settles it for CPUs.
  if (spec.train.dtype == ComputeDtype::kAuto) spec.train.dtype = ComputeDtype::kFp32;
  LH_ASSIGN_OR_RETURN(const std::vector<NamedArray> arrays, Dump(spec, stages));
  std::string bytes = SafetensorsHeader(arrays, {});
  for (const NamedArray& array : arrays) {
    bytes.append(reinterpret_cast<const char*>(array.values.data()),
                 array.values.size() * sizeof(float));
  }
  return WriteFileAtomic(path, bytes);
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  const auto stages = argc == 4 ? static_cast<uint32_t>(std::atoi(argv[2])) : 0;
  if (stages == 0) {
    fmt::print(stderr, "usage: stage_dump RUN.yaml STAGES OUT.safetensors\n");
    return 2;
  }
  const longhaul::Status status = longhaul::worker::Run(argv[1], stages, argv[3]);
  if (!status.ok()) fmt::print(stderr, "stage_dump: {}\n", longhaul::Message(status));
  return status.ok() ? 0 : 1;
}
