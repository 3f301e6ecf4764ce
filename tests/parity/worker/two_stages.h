// A small model on two stages in one thread, for tests that compare devices or watch the step loop.
#ifndef LONGHAUL_TESTS_PARITY_WORKER_TWO_STAGES_H_
#define LONGHAUL_TESTS_PARITY_WORKER_TWO_STAGES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gpu_test.h"
#include "worker/stage/stage.h"

namespace longhaul::testing {

inline constexpr uint32_t kTwoStagesVocabulary = 256;

struct SmallModel {
  std::string name;
  ModelFamily family = ModelFamily::kGpt;
  ComputeDtype dtype = ComputeDtype::kFp32;
  bool recompute = false;
  double tolerance = 0;  // of a loss on another device, nats
};

inline worker::StageOptions OptionsOf(const SmallModel& model, const DeviceName& device,
                                      bool deterministic = false) {
  worker::StageOptions options;
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
  options.train.deterministic = deterministic;
  options.train.optimizer.lr = 1e-3;
  options.vocabulary = kTwoStagesVocabulary;
  options.recompute = model.recompute;
  options.device = device;
  return options;
}

class TwoStages {
 public:
  // How a tensor crosses the boundary: what it gives is what the other stage reads.
  using Crossing = std::function<worker::BoundaryTensor(worker::BoundaryTensor)>;

  explicit TwoStages(const worker::StageOptions& options, Crossing cross = std::identity())
      : options_(options), cross_(std::move(cross)) {
    worker::StageOptions half = options_;
    half.layers = 2;
    half.last = false;
    above_ = Must(worker::Stage::Create(half));
    half.first = false;
    half.last = true;
    half.first_layer = 2;
    below_ = Must(worker::Stage::Create(half));
  }
  // The mean loss of a step's microbatches.
  double Train(uint64_t step) {
    double loss = 0;
    const uint32_t microbatches = options_.train.microbatches;
    for (uint32_t i = 0; i < microbatches; ++i) {
      const std::vector<int32_t> ids = Ids(step * microbatches + i), targets = Next(ids);
      const worker::BoundaryTensor activation =
          cross_(*Must(above_->Forward(Microbatch(i), {.tokens = ids})));
      Must(below_->Forward(Microbatch(i), {.activation = activation.view, .targets = targets}));
      loss += Must(below_->Loss(Microbatch(i)));
    }
    for (uint32_t i = 0; i < microbatches; ++i) {
      const worker::BoundaryTensor gradient = cross_(*Must(below_->Backward(Microbatch(i), {})));
      Must(above_->Backward(Microbatch(i), gradient.view));
    }
    const double norm =
        Must(above_->AddSquaredGradientNorm(Must(below_->AddSquaredGradientNorm(0))));
    for (worker::Stage* stage : {above_.get(), below_.get()}) {
      const Status status = stage->OptimizerStep(Step(step), options_.train.optimizer.lr,
                                                 worker::ClipScale(1.0, norm));
      EXPECT_TRUE(status.ok()) << status;
    }
    return loss / microbatches;
  }
  void TakeFrom(const TwoStages& other) {
    EXPECT_TRUE(above_->Restore(Must(other.above_->Snapshot())).ok());
    EXPECT_TRUE(below_->Restore(Must(other.below_->Snapshot())).ok());
  }
  std::vector<worker::NamedArray> Parameters() const {
    std::vector<worker::NamedArray> all = Must(above_->Snapshot()).parameters;
    for (worker::NamedArray& one : Must(below_->Snapshot()).parameters) {
      all.push_back(std::move(one));
    }
    return all;
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
    for (int32_t& id : ids) id = (id * 5 + 3) % static_cast<int32_t>(kTwoStagesVocabulary);
    return ids;
  }

  const worker::StageOptions options_;
  const Crossing cross_;
  std::unique_ptr<worker::Stage> above_, below_;
};

}  // namespace longhaul::testing

#endif  // LONGHAUL_TESTS_PARITY_WORKER_TWO_STAGES_H_
