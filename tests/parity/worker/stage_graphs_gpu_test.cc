// What a stage does by recorded graphs is, to the bit, what it does without them: whatever else it
// is asked meanwhile, however many microbatches are in flight, and after work that could not be
// recorded.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/parity/worker/stage_on_gpu.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_graph.h"

namespace longhaul::testing {
namespace {

using worker::TorchGraph;
using worker::TorchGraphRecorder;

class StageByGraphs : public StageOnGpu {
 protected:
  static StageChain ByGraphs() { return Chain(kGpu, /*deterministic=*/true); }
  static StageChain WithoutGraphs() {
    return Chain(kGpu, /*deterministic=*/true, /*graphs=*/false);
  }
};

TEST_P(StageByGraphs, DoesWhatItDoesWithout) {
  StageChain by_graphs = ByGraphs(), without = WithoutGraphs();
  for (uint64_t step = 1; step <= 10; ++step) EXPECT_EQ(by_graphs.Train(step), without.Train(step));
  by_graphs.TakeFrom(without);
  for (uint64_t step = 11; step <= 13; ++step)
    EXPECT_EQ(by_graphs.Train(step), without.Train(step));
  ExpectSameParameters(by_graphs, without);
}

TEST_P(StageByGraphs, RecordsMoreWhereMoreAreInFlightThanBefore) {
  StageChain by_graphs = ByGraphs(), without = WithoutGraphs();
  uint64_t step = 0;
  for (const uint32_t in_flight : {1, 3, 2, 4, 1, 4}) {
    ++step;
    EXPECT_EQ(by_graphs.Train(step, in_flight), without.Train(step, in_flight)) << in_flight;
  }
  ExpectSameParameters(by_graphs, without);
}

// In the first step no pass is idle between the forwards, later ones are.
TEST_P(StageByGraphs, LearnsTheSameWhereItIsValidatedBetweenForwardAndBackward) {
  StageChain validated = ByGraphs(), without = WithoutGraphs();
  uint64_t step = 0, sample = 1000;
  for (const uint32_t in_flight : {4, 2, 1, 4, 3}) {
    ++step;
    const double loss = validated.Train(step, in_flight, [&] {
      ++sample;
      EXPECT_NEAR(validated.Evaluate(sample), without.Evaluate(sample), GetParam().tolerance / 5);
    });
    EXPECT_EQ(loss, without.Train(step, in_flight)) << step;
  }
  ExpectSameParameters(validated, without);
}

// Samples between two steps read the hidden state of a recorded pass before its head.
TEST_P(StageByGraphs, HasTheLogitsThatItHasWithoutAndLearnsTheSame) {
  StageChain sampled = ByGraphs(), without = WithoutGraphs();
  for (uint64_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(sampled.Train(step), without.Train(step)) << step;
    const std::vector<float> got = sampled.Logits(step), expected = without.Logits(step);
    ASSERT_EQ(got.size(), size_t{2} * kSmallVocabulary);
    EXPECT_EQ(got, expected) << step;
  }
  ExpectSameParameters(sampled, without);
}

TEST_P(StageByGraphs, GoesOnAsAFreshOneWhereItIsRestoredWithMicrobatchesInFlight) {
  StageChain source = ByGraphs(), used = ByGraphs(), fresh = ByGraphs();
  uint64_t step = 0;
  while (step < 2) source.Train(++step);
  for (uint64_t other = 1; other <= 3; ++other) used.Train(other);
  for (uint32_t microbatch = 0; microbatch < 4; ++microbatch) used.Forward(4, microbatch);
  used.Backward(0);
  used.TakeFrom(source);
  fresh.TakeFrom(source);
  while (step < 5) {
    ++step;
    EXPECT_EQ(used.Train(step), fresh.Train(step)) << step;
  }
  ExpectSameParameters(used, fresh);
}

INSTANTIATE_TEST_SUITE_P(Models, StageByGraphs, SmallModels(), NameOf);

class FailedRecording : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { LoadTorchCudaOrFail(); }

  static at::TensorOptions OnGpu() { return at::TensorOptions(at::kFloat).device(device()); }
  static at::Device device() { return worker::TorchDevice(kGpu); }

  // What fails leaves nothing behind that a later recording finds.
  template <class Error>
  static void ExpectThatOthersRecordAfter(const std::function<void()>& work) {
    at::Tensor sum = at::full({4}, 0, OnGpu());
    // Once without a recording, so that the kernels are there.
    sum.add_((sum + 1.5).sum().item<float>() - 6);
    worker::AwaitTorch(device());
    const std::unique_ptr<TorchGraphRecorder> recorder = worker::MakeTorchGraphRecorder(device());
    EXPECT_THROW(recorder->Record(recorder->NewMemory(), work), Error);

    const std::unique_ptr<TorchGraph> graph =
        recorder->Record(recorder->NewMemory(), [&] { sum.add_(1.5); });
    for (int i = 0; i < 2; ++i) graph->Replay();
    EXPECT_EQ(sum.sum().item<float>(), 12);

    const SmallModel model{"gpt"};
    worker::StageOptions options = OptionsOf(model, kGpu, /*deterministic=*/true);
    StageChain by_graphs(options);
    options.graphs = false;
    StageChain without(options);
    for (uint64_t step = 1; step <= 3; ++step)
      EXPECT_EQ(by_graphs.Train(step), without.Train(step));
    ExpectSameParameters(by_graphs, without);
  }
};

TEST_F(FailedRecording, OfAWrongShapeIsReported) {
  const at::Tensor matrix = at::ones({2, 3}, OnGpu());
  ExpectThatOthersRecordAfter<c10::Error>([&] { (matrix + 1).mm(matrix); });
}

TEST_F(FailedRecording, OfWorkThatFailsByItselfIsReported) {
  const at::Tensor matrix = at::ones({2, 3}, OnGpu());
  ExpectThatOthersRecordAfter<std::runtime_error>([&] {
    const at::Tensor taken = matrix + 1;
    throw std::runtime_error("not today");
  });
}

// What waits for the device makes the recording itself invalid.
TEST_F(FailedRecording, OfWorkThatWaitsForTheDeviceIsReported) {
  const at::Tensor matrix = at::ones({2, 3}, OnGpu());
  ExpectThatOthersRecordAfter<c10::Error>([&] { (matrix + 1).sum().item<float>(); });
}

// All of the device's memory but what is smaller than a piece.
std::vector<at::Tensor> TakeAllMemory(int64_t piece_bytes, const at::TensorOptions& options) {
  std::vector<at::Tensor> pieces;
  try {
    for (;;) pieces.push_back(at::empty({piece_bytes}, options.dtype(at::kByte)));
  } catch (const c10::OutOfMemoryError&) {
    return pieces;
  }
}

struct Learnt {
  double loss = 0, squared_norm = 0;
};

Learnt LearntBy(worker::Stage& stage) {
  Learnt learnt{.loss = Must(stage.Loss(Microbatch(0)))};
  Must(stage.Backward(Microbatch(0), {}));
  learnt.squared_norm = Must(stage.AddSquaredGradientNorm(0)).sum;
  return learnt;
}

// Memory comes back in small pieces, so that recording fails several times, each time further on,
// before it succeeds.
TEST_F(FailedRecording, ForWantOfMemoryIsReportedAndTriedAgainByTheNextForward) {
  worker::StageOptions options = OptionsOf(SmallModel{"gpt"}, kGpu, /*deterministic=*/true);
  options.model.hidden = 512;
  options.model.heads = 8;
  options.model.context = 1024;
  options.train.microbatch_size = 4;
  options.train.microbatches = 1;
  options.vocabulary = 16384;
  const std::vector<int32_t> ids(4 * 1024, 7);
  const worker::Stage::Input input{.tokens = ids, .activation = {}, .targets = ids};

  options.graphs = false;
  std::unique_ptr<worker::Stage> stage = Must(worker::Stage::Create(options));
  Must(stage->Forward(Microbatch(0), input));
  const Learnt expected = LearntBy(*stage);

  options.graphs = true;
  stage = Must(worker::Stage::Create(options));
  std::vector<at::Tensor> pieces = TakeAllMemory(int64_t{128} << 20, OnGpu());
  int refused = 0;
  Status forward = stage->Forward(Microbatch(0), input).status();
  while (!forward.ok() && !pieces.empty()) {
    ++refused;
    EXPECT_EQ(forward.code(), absl::StatusCode::kResourceExhausted) << forward;
    pieces.pop_back();
    forward = stage->Forward(Microbatch(0), input).status();
  }
  ASSERT_TRUE(forward.ok()) << forward;
  fmt::print("refused {} times\n", refused);
  EXPECT_GE(refused, 2);
  pieces.clear();
  worker::TrimMemory(device());
  const Learnt learnt = LearntBy(*stage);
  EXPECT_EQ(learnt.loss, expected.loss);
  EXPECT_EQ(learnt.squared_norm, expected.squared_norm);
}

using Recording = FailedRecording;

// Microbatches of few documents are replayed, and one of many is computed kernel by kernel.
TEST_F(Recording, IsNotForMicrobatchesOfManyDocuments) {
  worker::StageOptions options =
      OptionsOf(SmallModel{"llama", ModelFamily::kLlama, ComputeDtype::kBf16}, kGpu,
                /*deterministic=*/true);
  options.masked_attention = true;
  options.train.microbatches = 1;
  const size_t context = options.model.context;
  const std::vector<int32_t> ids(2 * context, 7);
  const auto losses = [&](bool graphs) {
    options.graphs = graphs;
    const std::unique_ptr<worker::Stage> stage = Must(worker::Stage::Create(options));
    std::vector<double> all;
    for (const size_t length : {context, context / 2, size_t{3}, size_t{1}, context}) {
      std::vector<int32_t> documents;
      for (size_t i = 0; i < ids.size(); ++i) {
        documents.push_back(static_cast<int32_t>(i % context / length));
      }
      Must(stage->Forward(
          Microbatch(0),
          {.tokens = ids, .activation = {}, .targets = ids, .documents = documents}));
      const Learnt learnt = LearntBy(*stage);
      all.insert(all.end(), {learnt.loss, learnt.squared_norm});
      EXPECT_TRUE(stage->SkipStep(Step(all.size() / 2)).ok());
    }
    return all;
  };
  const std::vector<double> expected = losses(false), got = losses(true);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-3 * expected[i]) << i;
  }
}

}  // namespace
}  // namespace longhaul::testing
