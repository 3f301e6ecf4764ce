// Pairs of answers, small adapted models and chains of their stages, for tests of direct preference
// optimization.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "run/boundary/boundary_shape.h"
#include "run/model/lora.h"
#include "tests/parity/worker/dpo_reference.h"
#include "tests/parity/worker/group_cases.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

using longhaul::testing::Answer;
using longhaul::testing::DpoByHand;
using longhaul::testing::DpoResult;
using longhaul::testing::Pair;
using longhaul::testing::Values;

inline constexpr uint32_t kContext = 48, kRows = 3, kMicrobatches = 2;
inline constexpr int32_t kEnd = 0;  // ends a document, and fills a row

struct DpoCase {
  std::string name;
  ModelFamily family = ModelFamily::kLlama;
  uint32_t stages = 1, ranks = 1, slices = 1;
  Recompute recompute = Recompute::kNone;
  bool sequence = false;
  std::optional<uint32_t> vocabulary = std::nullopt;
  double dropout = 0, label_smoothing = 0;
  QuantizeBase quantize = QuantizeBase::kNone;
  ComputeDtype dtype = ComputeDtype::kFp32;
  DeviceName device = {};
  bool graphs = true;
};
inline void PrintTo(const DpoCase& one, std::ostream* out) {
  *out << one.name;
}

inline StageOptions WholeOf(const DpoCase& one) {
  StageOptions options;
  options.model = testing::SmallModelOf(one.family);
  options.model.layers = options.layers = 3;
  options.model.hidden = 32;
  options.model.intermediate = 48;
  options.model.context = kContext;
  options.model.balance = Balance::kNone;
  options.model.vocabulary = one.vocabulary;
  options.model.lora = LoraSpec{
      .rank = 3, .alpha = 6, .dropout = one.dropout, .quantize_base = one.quantize, .targets = {}};
  options.model.lora->targets = model::TargetsOf(options.model);
  options.vocabulary = 61;
  options.train.steps = 10;
  options.train.microbatches = kMicrobatches;
  options.train.microbatch_size = kRows;
  options.train.dpo = DpoSpec{.beta = 0.4, .label_smoothing = one.label_smoothing};
  options.train.optimizer.lr = 1e-2;
  options.recompute = one.recompute;
  options.slices = one.slices;
  options.train.dtype = one.dtype;
  options.train.deterministic = true;
  options.device = one.device;
  options.graphs = one.graphs;
  options.group.sequence = one.sequence;
  options.masked_targets = options.masked_attention = true;
  options.loads = options.loads_adapters = true;
  return options;
}

// A number in (-1, 1) for each place of an array.
inline float NumberOf(uint64_t key, size_t i) {
  uint64_t state = (key + i) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<float>(static_cast<double>(state >> 11) / (uint64_t{1} << 52) - 1);
}

// `b`: what the adapters' B are multiplied by.
inline std::vector<float> ValueOf(const model::PlacedParameter& placed, float b) {
  const std::string name = placed.Name();
  const model::Shape shape = placed.parameter.shape;
  const bool is_norm = !shape.is_matrix() && name.ends_with(".weight");
  float scale = shape.is_matrix() ? 1.6f / std::sqrt(static_cast<float>(shape.columns)) : 0.2f;
  if (name.find("embed") != std::string::npos || name == "wte") scale = 1;
  if (name.ends_with("lora_B.weight")) scale = b;
  std::vector<float> values(shape.elements());
  const uint64_t key = Checksum64(std::as_bytes(std::span(name)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * NumberOf(key, i) + (is_norm ? 1.0f : 0.0f);
  }
  return values;
}

inline Values AllValues(const StageOptions& options, float b) {
  Values all;
  for (const model::PlacedParameter& placed : options.parameters()) {
    all[placed.Name()] = ValueOf(placed, b);
  }
  return all;
}

// A document with so many tokens of a prompt and of an answer, the end token among the latter.
inline Answer AnswerOf(uint32_t prompt, uint32_t answer, int salt) {
  Answer made;
  for (uint32_t i = 0; i < prompt + answer; ++i) {
    const int prompt_salt = i < prompt ? salt / 10 : salt;
    made.tokens.push_back(
        1 +
        static_cast<int32_t>((i * i * 7 + i * 5 + static_cast<uint32_t>(prompt_salt) * 11) % 60));
    made.counts.push_back(i >= std::max(prompt, 1u));
  }
  made.tokens.back() = kEnd;
  return made;
}

// The pairs of each row of each microbatch. The numbers of pairs differ, and one row has none.
using RowOfPairs = std::vector<Pair>;
inline std::vector<std::vector<RowOfPairs>> Data() {
  const auto pair = [](uint32_t prompt, uint32_t chosen, uint32_t rejected, int salt) {
    return Pair{AnswerOf(prompt, chosen, 10 * salt), AnswerOf(prompt, rejected, 10 * salt + 1)};
  };
  return {{{pair(4, 7, 9, 1), pair(3, 3, 4, 2), pair(1, 2, 3, 3)}, {pair(10, 14, 14, 4)}, {}},
          {{pair(0, 6, 5, 5), pair(5, 6, 9, 6)}, {}, {pair(2, 5, 4, 7)}}};
}

inline std::vector<Pair> AllPairs() {
  std::vector<Pair> all;
  for (const auto& microbatch : Data()) {
    for (const RowOfPairs& row : microbatch) all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

// A microbatch as a stage takes it: pairs one after the other, then end tokens.
struct Rows {
  explicit Rows(const std::vector<RowOfPairs>& rows) {
    for (const RowOfPairs& row : rows) {
      std::vector<int32_t> all;
      std::vector<bool> count;
      for (const Pair& pair : row) {
        for (const Answer* answer : {&pair.chosen, &pair.rejected}) {
          all.insert(all.end(), answer->tokens.begin(), answer->tokens.end());
          count.insert(count.end(), answer->counts.begin(), answer->counts.end());
        }
      }
      EXPECT_LE(all.size(), kContext);
      all.resize(kContext + 1, kEnd);
      count.resize(kContext + 1);
      int32_t document = 0;
      for (size_t i = 0; i < kContext; ++i) {
        tokens.push_back(all[i]);
        targets.push_back(count[i + 1] && all[i] != kEnd ? all[i + 1] : kNoTarget);
        documents.push_back(document);
        if (all[i] == kEnd) ++document;
      }
    }
  }
  std::vector<int32_t> tokens, targets, documents;
};

// The stages of a model, one behind the other.
class Chain {
 public:
  Chain(const DpoCase& one, float b) : options_(WholeOf(one)) {
    for (uint32_t s = 0; s < one.stages; ++s) {
      StageOptions part = options_;
      part.layers = options_.layers / one.stages;
      part.first_layer = s * part.layers;
      part.first = s == 0;
      part.last = s + 1 == one.stages;
      auto stage = MakeWith(part, one.ranks);
      EXPECT_TRUE(stage.ok()) << stage.status();
      const Status loaded =
          (*stage)->Load([b](const model::PlacedParameter& placed, std::span<float> values) {
            const std::vector<float> all = ValueOf(placed, b);
            EXPECT_EQ(values.size(), all.size()) << placed.Name();
            std::copy_n(all.begin(), std::min(all.size(), values.size()), values.begin());
            return absl::OkStatus();
          });
      EXPECT_TRUE(loaded.ok()) << loaded;
      stages_.push_back(*std::move(stage));
    }
  }

  // Loss, margins and gradients of a step over Data(). `update`: ends the step.
  DpoResult Step(uint64_t step = 1) {
    DpoResult result;
    const auto data = Data();
    for (uint32_t m = 0; m < kMicrobatches; ++m) {
      const Rows rows(data[m]);
      for (uint32_t s = 0; s < options_.slices; ++s) {
        const Slice slice(Microbatch(m), s);
        std::optional<BoundaryTensor> boundary;
        for (const auto& stage : stages_) {
          boundary = Run(*stage, rows, slice, step, boundary, nullptr);
        }
        const auto loss = stages_.back()->Loss(slice);
        EXPECT_TRUE(loss.ok()) << loss.status();
        result.loss += *loss / kMicrobatches;
      }
    }
    for (uint32_t m = 0; m < kMicrobatches; ++m) {
      for (uint32_t s = options_.slices; s-- > 0;) Backward(Slice(Microbatch(m), s));
    }
    End(step);
    Take(&result);
    for (const auto& stage : stages_) {
      const StageSnapshot snapshot = *stage->Snapshot();
      for (const NamedArray& moment : snapshot.moments) {
        if (!moment.name.ends_with(".exp_avg")) continue;
        std::vector<double>& gradient =
            result.gradients[moment.name.substr(0, moment.name.rfind('.'))];
        for (const float value : moment.values) {
          gradient.push_back(value / (1 - options_.train.optimizer.beta1));
        }
      }
    }
    return result;
  }
  DpoResult Validate() {
    DpoResult result;
    const auto data = Data();
    for (uint32_t m = 0; m < kMicrobatches; ++m) {
      const Rows rows(data[m]);
      for (uint32_t s = 0; s < options_.slices; ++s) {
        std::optional<BoundaryTensor> boundary;
        double loss = 0;
        for (const auto& stage : stages_) {
          boundary = Run(*stage, rows, Slice(Microbatch(m), s), 0, boundary, &loss);
        }
        result.loss += loss / kMicrobatches;
      }
    }
    Take(&result);
    return result;
  }

 private:
  void Backward(const Slice& slice) {
    std::optional<BoundaryTensor> gradient;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      auto next = (*stage)->Backward(slice, gradient ? gradient->view : codec::TensorView{});
      EXPECT_TRUE(next.ok()) << next.status();
      gradient = *std::move(next);
      if (!gradient) continue;
      // None for what is computed without adapters.
      EXPECT_EQ(gradient->view.shape, SliceShape(options_.model, options_.train, {},
                                                 options_.slices, Direction::kBackward));
    }
  }
  std::optional<BoundaryTensor> Run(Stage& stage, const Rows& rows, const Slice& slice,
                                    uint64_t step, const std::optional<BoundaryTensor>& before,
                                    double* loss) const {
    const Stage::Input input{.tokens = rows.tokens,
                             .activation = before ? before->view : codec::TensorView{},
                             .targets = rows.targets,
                             .documents = rows.documents,
                             .counted = static_cast<double>(AllPairs().size()) / kMicrobatches,
                             .random = 100 * step + slice.microbatch.value()};
    auto output =
        loss == nullptr ? stage.Forward(slice, input) : stage.Evaluate(slice, input, loss);
    EXPECT_TRUE(output.ok()) << output.status();
    return *std::move(output);
  }
  void End(uint64_t step) {
    double norm = 0;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      norm = (*stage)->AddSquaredGradientNorm(norm)->sum;
    }
    for (const auto& stage : stages_) {
      const Status status = stage->OptimizerStep(longhaul::Step(step), 1e-2, 1);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  void Take(DpoResult* result) {
    const PreferenceSums sums = stages_.back()->TakePreferences();
    EXPECT_EQ(sums.pairs, AllPairs().size());
    result->accuracy = sums.preferred / sums.pairs;
    result->margin = sums.margins / sums.pairs;
  }

  const StageOptions options_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

inline double RelativeError(const std::vector<double>& got, const std::vector<double>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    difference += std::pow(got[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / size);
}

inline void ExpectNear(const DpoResult& got, const DpoResult& expected, double bound) {
  EXPECT_NEAR(got.loss, expected.loss, bound * expected.loss);
  EXPECT_NEAR(got.margin, expected.margin, 10 * bound * std::abs(expected.margin));
  EXPECT_NEAR(got.accuracy, expected.accuracy, 1e-12);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    ASSERT_TRUE(got.gradients.contains(name)) << name;
    EXPECT_LE(RelativeError(got.gradients.at(name), gradient), bound) << name;
  }
}

// What the adapters' B are multiplied by where they change the model.
inline constexpr float kB = 0.3f;

}  // namespace longhaul::worker
