// Stages on a GPU do what stages on the CPU do, within what sums in another order make of it; and
// what one has learnt the other can go on with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/gpu_test.h"
#include "worker/stage/stage.h"
#include "worker/stage/torch_cuda.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Must;

constexpr uint32_t kVocabulary = 256;

struct Model {
  std::string name;
  ModelFamily family;
  ComputeDtype dtype;
  bool recompute;
  double tolerance;  // of a loss, nats
};

StageOptions OptionsOf(const Model& model, const DeviceName& device) {
  StageOptions options;
  options.model.family = model.family;
  if (model.family == ModelFamily::kLlama) {
    options.model.kv_heads = 2;
    options.model.intermediate = 160;
    options.model.qkv_bias = true;
  }
  options.model.layers = 4;
  options.model.hidden = 64;
  options.model.heads = 4;
  options.model.context = 64;
  options.train.steps = 100;
  options.train.microbatches = 4;
  options.train.microbatch_size = 2;
  options.train.dtype = model.dtype;
  options.train.optimizer.lr = 1e-3;
  options.vocabulary = kVocabulary;
  options.recompute = model.recompute;
  options.device = device;
  return options;
}

// Two stages in one thread.
class Pipeline {
 public:
  Pipeline(const Model& model, const DeviceName& device) : options_(OptionsOf(model, device)) {
    StageOptions half = options_;
    half.layers = 2;
    half.last = false;
    above_ = Must(Stage::Create(half));
    half.first = false;
    half.last = true;
    half.first_layer = 2;
    below_ = Must(Stage::Create(half));
  }
  // The mean loss of a step's microbatches.
  double Train(uint64_t step) {
    double loss = 0;
    const uint32_t microbatches = options_.train.microbatches;
    for (uint32_t i = 0; i < microbatches; ++i) {
      const std::vector<int32_t> ids = Ids(step * microbatches + i), targets = Next(ids);
      const auto activation = Must(above_->Forward(Microbatch(i), {.tokens = ids}));
      Must(below_->Forward(Microbatch(i), {.activation = activation->view, .targets = targets}));
      loss += Must(below_->Loss(Microbatch(i)));
    }
    for (uint32_t i = 0; i < microbatches; ++i) {
      const auto gradient = Must(below_->Backward(Microbatch(i), {}));
      Must(above_->Backward(Microbatch(i), gradient->view));
    }
    const double norm =
        Must(above_->AddSquaredGradientNorm(Must(below_->AddSquaredGradientNorm(0))));
    for (Stage* stage : {above_.get(), below_.get()}) {
      const Status status =
          stage->OptimizerStep(Step(step), options_.train.optimizer.lr, ClipScale(1.0, norm));
      EXPECT_TRUE(status.ok()) << status;
    }
    return loss / microbatches;
  }
  void TakeFrom(const Pipeline& other) {
    EXPECT_TRUE(above_->Restore(Must(other.above_->Snapshot())).ok());
    EXPECT_TRUE(below_->Restore(Must(other.below_->Snapshot())).ok());
  }

 private:
  static std::vector<int32_t> Ids(uint64_t microbatch) {
    std::vector<int32_t> ids(2 * 64);
    uint64_t state = microbatch * 2654435761u + 1;
    for (int32_t& id : ids) {  // one of few letters after another: there is something to learn
      state = state * 6364136223846793005u + 1442695040888963407u;
      id = static_cast<int32_t>(97 + (state >> 60));
    }
    return ids;
  }
  static std::vector<int32_t> Next(std::vector<int32_t> ids) {
    for (int32_t& id : ids) id = (id * 5 + 3) % static_cast<int32_t>(kVocabulary);
    return ids;
  }

  const StageOptions options_;
  std::unique_ptr<Stage> above_, below_;
};

class StageOnGpu : public ::testing::TestWithParam<Model> {
 protected:
  static void SetUpTestSuite() {
    ::longhaul::testing::Gpu();
    const Status loaded = LoadTorchCuda(DefaultTorchCudaPath());
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
};

constexpr DeviceName kCpu{}, kGpu{0};

TEST_P(StageOnGpu, LearnsAsOnTheCpu) {
  Pipeline cpu(GetParam(), kCpu), gpu(GetParam(), kGpu);
  double first = 0, last = 0;
  for (uint64_t step = 1; step <= 50; ++step) {
    const double there = cpu.Train(step), here = gpu.Train(step);
    ASSERT_TRUE(std::isfinite(here)) << step;
    ASSERT_NEAR(here, there, GetParam().tolerance) << step;
    if (step == 1) first = here;
    last = here;
  }
  EXPECT_LT(last, first - 1);
}

TEST_P(StageOnGpu, TheOtherDeviceGoesOn) {
  Pipeline cpu(GetParam(), kCpu), gpu(GetParam(), kGpu);
  for (uint64_t step = 1; step <= 3; ++step) gpu.Train(step);
  cpu.TakeFrom(gpu);
  EXPECT_NEAR(cpu.Train(4), gpu.Train(4), GetParam().tolerance);
  gpu.TakeFrom(cpu);
  EXPECT_NEAR(cpu.Train(5), gpu.Train(5), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Models, StageOnGpu,
    ::testing::Values(Model{"gpt", ModelFamily::kGpt, ComputeDtype::kFp32, false, 2e-3},
                      Model{"gpt_recomputed", ModelFamily::kGpt, ComputeDtype::kFp32, true, 2e-3},
                      Model{"gpt_bf16", ModelFamily::kGpt, ComputeDtype::kBf16, false, 5e-2},
                      Model{"llama", ModelFamily::kLlama, ComputeDtype::kFp32, false, 2e-3},
                      Model{"llama_bf16", ModelFamily::kLlama, ComputeDtype::kBf16, false, 5e-2}),
    [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace longhaul::worker
