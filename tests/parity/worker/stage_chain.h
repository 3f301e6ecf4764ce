// A small model on a few stages in one thread, for tests that compare devices or watch the step
// loop.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/parity/worker/small_model.h"
#include "tests/support/gpu_test.h"
#include "tests/support/kin.h"
#include "worker/stage/stage.h"

namespace longhaul::testing {

inline constexpr uint32_t kSmallVocabulary = 253;

struct SmallModel {
  std::string name;
  ModelFamily family = ModelFamily::kGpt;
  ComputeDtype dtype = ComputeDtype::kFp32;
  Recompute recompute = Recompute::kNone;
  double tolerance = 0;  // of a loss on another device, nats
  uint32_t stages = 2;
  bool tied = false;
  std::string_view kin = {};  // of Llama (tests/support/kin.h)
};

// Options of one stage with all layers.
inline worker::StageOptions OptionsOf(const SmallModel& model, const DeviceName& device,
                                      bool deterministic = false) {
  worker::StageOptions options;
  options.model = SmallModelOf(model.family);
  options.model.tied = model.tied;
  MakeKin(model.kin, &options.model);
  options.train.steps = 100;
  options.train.microbatches = 4;
  options.train.microbatch_size = 2;
  options.train.dtype = model.dtype;
  options.train.deterministic = deterministic;
  options.train.optimizer.lr = 1e-3;
  options.vocabulary = kSmallVocabulary;
  options.layers = options.model.layers;
  options.recompute = model.recompute;
  options.device = device;
  return options;
}

class StageChain {
 public:
  // How a tensor crosses a boundary: what it gives is what the other stage reads.
  using Crossing = std::function<worker::BoundaryTensor(worker::BoundaryTensor)>;
  using MakeStage =
      std::function<StatusOr<std::unique_ptr<worker::Stage>>(const worker::StageOptions&)>;

  // `options`: of all layers, a multiple of `stages`.
  explicit StageChain(const worker::StageOptions& options, uint32_t stages = 2,
                      Crossing cross = std::identity(),
                      const MakeStage& make = worker::Stage::Create)
      : options_(options), cross_(std::move(cross)) {
    for (uint32_t s = 0; s < stages; ++s) {
      worker::StageOptions part = options_;
      part.layers = options_.layers / stages;
      part.first_layer = s * part.layers;
      part.first = s == 0;
      part.last = s + 1 == stages;
      stages_.push_back(Must(make(part)));
    }
  }

  // A step in which up to `in_flight` microbatches have run forward and not backward. `between` is
  // called after each forward. The mean loss of the step's microbatches.
  double Train(uint64_t step, uint32_t in_flight, const std::function<void()>& between = {}) {
    const uint32_t microbatches = options_.train.microbatches;
    double loss = 0;
    uint32_t done = 0;
    for (uint32_t i = 0; i < microbatches; ++i) {
      loss += Forward(step, i);
      if (between) between();
      if (i + 1 - done == in_flight) Backward(done++);
    }
    while (done < microbatches) Backward(done++);
    Update(step);
    return loss / microbatches;
  }
  // All forwards, then all backwards.
  double Train(uint64_t step) { return Train(step, options_.train.microbatches); }

  // The parts of a step. Forward gives the loss.
  double Forward(uint64_t step, uint32_t microbatch) {
    Run(step * options_.train.microbatches + microbatch, [&](worker::Stage& stage, auto& input) {
      return Must(stage.Forward(Microbatch(microbatch), input));
    });
    return Must(stages_.back()->Loss(Microbatch(microbatch)));
  }
  void Backward(uint32_t microbatch) {
    std::optional<worker::BoundaryTensor> gradient;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      if (gradient) gradient = cross_(*std::move(gradient));
      gradient = Must((*stage)->Backward(Microbatch(microbatch),
                                         gradient ? gradient->view : codec::TensorView{}));
    }
  }
  void Update(uint64_t step) {
    if (stages_.size() > 1 && options_.model.tied) SumTied();
    double norm = 0;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      norm = Must((*stage)->AddSquaredGradientNorm(norm)).sum;
    }
    for (const auto& stage : stages_) {
      const Status status = stage->OptimizerStep(Step(step), options_.train.optimizer.lr,
                                                 worker::ClipScale(1.0, norm));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // The loss of a sample of which nothing is learnt here.
  double Evaluate(uint64_t sample) {
    double loss = 0;
    Run(sample, [&](worker::Stage& stage, auto& input) {
      return Must(stage.Evaluate(Slice(), input, &loss));
    });
    return loss;
  }

  // The logits behind two tokens of a sample, of which nothing is learnt either.
  std::vector<float> Logits(uint64_t sample) {
    const std::vector<worker::Stage::Place> places = {{.row = 1, .token = 63},
                                                      {.row = 0, .token = 7}};
    std::vector<float> logits;
    Run(sample, [&](worker::Stage& stage, auto& input) -> std::optional<worker::BoundaryTensor> {
      double loss = 0;
      if (&stage != stages_.back().get()) return Must(stage.Evaluate(Slice(), input, &loss));
      logits = Must(stage.EvaluateLogits(Slice(), input, places));
      return std::nullopt;
    });
    return logits;
  }

  void TakeFrom(const StageChain& other) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Status status = stages_[s]->Restore(Must(other.stages_[s]->Snapshot()));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  std::vector<worker::NamedArray> Parameters() const {
    std::vector<worker::NamedArray> all;
    for (const auto& stage : stages_) {
      for (worker::NamedArray& one : Must(stage->Snapshot()).parameters) {
        all.push_back(std::move(one));
      }
    }
    return all;
  }

 private:
  // Sums only the embedding's rows of the few letters used, as over a link; they are not
  // consecutive.
  void SumTied() {
    worker::TiedMatrix &embedding = *stages_.front()->tied_matrix(),
                       &head = *stages_.back()->tied_matrix();
    std::vector<int32_t> all(embedding.rows()), some;
    std::iota(all.begin(), all.end(), 0);
    for (int32_t id = 97; id < 97 + 16; ++id) some.push_back(id);
    some.push_back(static_cast<int32_t>(embedding.rows()) - 1);
    std::vector<float> whole(all.size() * head.channels()), rows(some.size() * head.channels());
    EXPECT_EQ(head.ReadGradient(all, whole), absl::OkStatus());
    EXPECT_EQ(embedding.ReadGradient(some, rows), absl::OkStatus());
    EXPECT_EQ(embedding.AddToGradient(all, whole), absl::OkStatus());
    EXPECT_EQ(head.AddToGradient(some, rows), absl::OkStatus());
  }
  template <class Pass>
  void Run(uint64_t sample, const Pass& pass) {
    const std::vector<int32_t> ids = Ids(sample), targets = Next(ids);
    worker::Stage::Input input{.tokens = ids, .activation = {}, .targets = targets};
    std::optional<worker::BoundaryTensor> activation;
    for (const auto& stage : stages_) {
      if (activation) {
        activation = cross_(*std::move(activation));
        input.activation = activation->view;
      }
      activation = pass(*stage, input);
    }
  }
  static std::vector<int32_t> Ids(uint64_t sample) {
    std::vector<int32_t> ids(2 * 64);
    uint64_t state = sample * 2654435761u + 1;
    for (int32_t& id : ids) {  // one of few letters after another: there is something to learn
      state = state * 6364136223846793005u + 1442695040888963407u;
      id = static_cast<int32_t>(97 + (state >> 60));
    }
    return ids;
  }
  static std::vector<int32_t> Next(std::vector<int32_t> ids) {
    for (int32_t& id : ids) id = (id * 5 + 3) % static_cast<int32_t>(kSmallVocabulary);
    return ids;
  }

  const worker::StageOptions options_;
  const Crossing cross_;
  std::vector<std::unique_ptr<worker::Stage>> stages_;
};

// To the bit.
inline void ExpectSameParameters(const StageChain& one, const StageChain& other) {
  const std::vector<worker::NamedArray> of_one = one.Parameters(), of_other = other.Parameters();
  ASSERT_EQ(of_one.size(), of_other.size());
  for (size_t i = 0; i < of_one.size(); ++i) {
    EXPECT_EQ(of_one[i].values, of_other[i].values) << of_one[i].name;
  }
}

}  // namespace longhaul::testing
