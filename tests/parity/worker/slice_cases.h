// Two stages whose microbatches go through them in slices, on a device, and what a step of theirs
// computes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/model/lora.h"
#include "tests/parity/worker/small_model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

inline constexpr uint32_t kSliceVocabulary = 101, kSliceMicrobatches = 3;

struct SliceCase {
  std::string name;
  ModelFamily family;
  Recompute recompute = Recompute::kNone;
  bool documents = false;     // attention and loss stay within them
  bool as_published = false;  // norms of queries and keys, heads of their own size
  bool lora = false;          // all else is frozen
  uint32_t context = 64;
  ComputeDtype dtype = ComputeDtype::kFp32;
  double dropout = 0;  // with lora
};

// Where and how it is computed.
struct SliceDevice {
  DeviceName device = {};
  bool graphs = false;
};

inline StageOptions SliceOptionsOf(const SliceCase& one, uint32_t slices,
                                   const SliceDevice& on = {}) {
  StageOptions options;
  options.model = testing::SmallModelOf(one.family);
  options.model.context = one.context;
  if (one.as_published) {
    options.model.qk_norm = true;
    options.model.head_channels = 24;
  }
  if (one.lora) {
    options.model.lora = LoraSpec{.rank = 4, .alpha = 8, .dropout = one.dropout, .targets = {}};
    options.model.lora->targets = model::TargetsOf(options.model);
  }
  options.train.steps = 10;
  options.train.microbatches = kSliceMicrobatches;
  options.train.microbatch_size = 2;
  options.train.seed = 5;
  options.vocabulary = kSliceVocabulary;
  options.recompute = one.recompute;
  options.masked_attention = options.masked_targets = one.documents;
  options.slices = slices;
  options.train.dtype = one.dtype;
  options.train.deterministic = on.device.cuda_index.has_value();
  options.device = on.device;
  options.graphs = on.graphs;
  return options;
}

struct SliceBatch {
  std::vector<int32_t> ids, targets, documents;
};

// Documents end in the middle of slices.
inline SliceBatch SliceBatchOf(const SliceCase& one, uint32_t microbatch) {
  SliceBatch batch;
  uint32_t state = 17 + microbatch;
  for (uint32_t row = 0; row < 2; ++row) {
    int32_t document = 0;
    for (uint32_t token = 0; token < one.context; ++token) {
      state = state * 1664525 + 1013904223;
      batch.ids.push_back(static_cast<int32_t>((state >> 16) % kSliceVocabulary));
      batch.documents.push_back(document);
      const bool ends = (token + 5 * row) % 23 == 7;
      batch.targets.push_back(one.documents && ends
                                  ? kNoTarget
                                  : static_cast<int32_t>((state >> 8) % kSliceVocabulary));
      if (ends) ++document;
    }
  }
  return batch;
}

// What a step computed: before its update, but for the moments, of which the first is a tenth of
// the gradient.
struct OfSlices {
  std::vector<double> evaluated, losses;  // by microbatch
  double squared_norm = 0;
  std::map<std::string, std::vector<float>> moments;
};

// Two stages, as an executor runs them: forwards of all microbatches, then backwards.
class SlicedChain {
 public:
  SlicedChain(const SliceCase& one, uint32_t slices, const SliceDevice& on = {},
              const MakeStage& make_stage = Stage::Create)
      : one_(one), order_(slices) {
    for (const bool last : {false, true}) {
      StageOptions options = SliceOptionsOf(one, slices, on);
      options.layers = options.model.layers / 2;
      options.first_layer = last ? options.layers : 0;
      options.first = !last;
      options.last = last;
      auto stage = make_stage(options);
      EXPECT_TRUE(stage.ok()) << stage.status();
      stages_.push_back(*std::move(stage));
    }
  }

  // With LoRA the first step would find no gradient of half of the adapters.
  OfSlices Train(uint64_t steps) {
    OfSlices computed;
    for (uint64_t step = 1; step <= steps; ++step) computed = Step(longhaul::Step(step));
    return computed;
  }

 private:
  OfSlices Step(longhaul::Step step) {
    OfSlices computed;
    for (uint32_t m = 0; m < kSliceMicrobatches; ++m) {
      computed.evaluated.push_back(Sum(m, /*trains=*/false));
      computed.losses.push_back(Sum(m, /*trains=*/true));
    }
    const uint32_t all = kSliceMicrobatches * order_.slices();
    for (uint32_t place = 0; place < all; ++place) {
      Backward(order_.At(place, Direction::kBackward));
    }
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      computed.squared_norm = (*stage)->AddSquaredGradientNorm(computed.squared_norm).value().sum;
    }
    for (const auto& stage : stages_) {
      EXPECT_EQ(stage->OptimizerStep(step, 1e-3, 1), absl::OkStatus());
      StageSnapshot snapshot = stage->Snapshot().value();
      for (NamedArray& moment : snapshot.moments) {
        if (moment.name.ends_with(".exp_avg")) {
          computed.moments[moment.name] = std::move(moment.values);
        }
      }
    }
    return computed;
  }

  // The loss of a microbatch.
  double Sum(uint32_t m, bool trains) {
    const SliceBatch batch = SliceBatchOf(one_, m);
    double sum = 0;
    for (uint32_t i = 0; i < order_.slices(); ++i) {
      const Slice slice(Microbatch(m), i);
      Stage::Input input{
          .tokens = batch.ids, .activation = {}, .targets = batch.targets, .random = m};
      if (one_.documents) {
        input.documents = batch.documents;
        input.counted = 100;
      }
      double loss = 0;
      std::optional<BoundaryTensor> boundary;
      for (const auto& stage : stages_) {
        if (boundary) input.activation = boundary->view;
        auto output = trains ? stage->Forward(slice, input) : stage->Evaluate(slice, input, &loss);
        EXPECT_TRUE(output.ok()) << output.status();
        boundary = *std::move(output);
      }
      sum += trains ? stages_.back()->Loss(slice).value() : loss;
    }
    return sum;
  }

  void Backward(const Slice& slice) {
    const auto gradient = stages_[1]->Backward(slice, {});
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    EXPECT_EQ((*gradient)->view.shape.tokens, one_.context / order_.slices());
    const auto nothing = stages_[0]->Backward(slice, (*gradient)->view);
    ASSERT_TRUE(nothing.ok()) << nothing.status();
    EXPECT_FALSE(nothing->has_value());
  }

  const SliceCase& one_;
  const SliceOrder order_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

inline double LargestOf(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max<double>(largest, std::abs(value));
  return largest;
}

// Losses, norm and gradients are those of whole microbatches within `bound` of them.
inline void ExpectThoseOfWhole(const OfSlices& cut, const OfSlices& whole, double bound) {
  for (uint32_t m = 0; m < kSliceMicrobatches; ++m) {
    EXPECT_NEAR(cut.losses[m], whole.losses[m], 0.2 * bound * whole.losses[m]);
    EXPECT_NEAR(cut.evaluated[m], whole.evaluated[m], 0.2 * bound * whole.evaluated[m]);
  }
  EXPECT_NEAR(cut.squared_norm, whole.squared_norm, bound * whole.squared_norm);
  ASSERT_EQ(cut.moments.size(), whole.moments.size());
  // Some gradients are small sums of far larger numbers, as that of a bias of keys, which changes
  // all scores alike. They are compared with a share of the largest gradient.
  double least = 0;
  for (const auto& [name, expected] : whole.moments) {
    least = std::max(least, 0.03 * LargestOf(expected));
  }
  for (const auto& [name, expected] : whole.moments) {
    const std::vector<float>& got = cut.moments.at(name);
    ASSERT_EQ(got.size(), expected.size()) << name;
    double difference = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference = std::max<double>(difference, std::abs(got[i] - expected[i]));
    }
    EXPECT_LE(difference, bound * std::max(LargestOf(expected), least)) << name;
  }
}

}  // namespace longhaul::worker
