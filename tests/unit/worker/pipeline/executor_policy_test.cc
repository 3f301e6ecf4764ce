// What an executor does is what base/schedule's policy says for the events that it was given: a
// stage in the middle, events in random orders, and the policy beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/registry.h"
#include "proto/wire/tensor_header.h"
#include "run/boundary/boundary_shape.h"
#include "run/schedule/policy.h"
#include "tests/support/mailbox.h"
#include "tests/unit/worker/pipeline/no_shards.h"
#include "tests/unit/worker/tiny_run.h"
#include "worker/pipeline/executor.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Mailbox;
using schedule::StagePolicy;
using schedule::Task;
using schedule::Work;

constexpr uint32_t kMicrobatches = 10, kSteps = 3;

BoundaryTensor Tensor(const codec::Shape& shape) {
  auto values = std::make_shared<std::vector<float>>(shape.elements(), 0.5f);
  return {{values->data(), codec::Dtype::kF32, shape}, values};
}

// Says what it is asked to compute and computes until it is told to go on.
class StepByStep final : public Stage {
 public:
  explicit StepByStep(const codec::Shape& shape) : shape_(shape) {}

  StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input&) override {
    return Compute({Task::kForward, slice});
  }
  StatusOr<double> Loss(Slice) const override { return 0; }
  StatusOr<std::optional<BoundaryTensor>> Backward(Slice slice, const codec::TensorView&) override {
    return Compute({Task::kBackward, slice});
  }
  StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice, const Input&, double*) override {
    return absl::UnimplementedError("no validation here");
  }
  StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const override {
    return SquaredNorm{.sum = sum + 1, .own = 1};
  }
  Status OptimizerStep(Step, double, double) override { return absl::OkStatus(); }
  Status SkipStep(Step) override { return absl::OkStatus(); }
  StatusOr<StageSnapshot> Snapshot() const override { return StageSnapshot(); }
  Status Restore(const StageSnapshot&) override { return absl::OkStatus(); }
  Status Load(const ReadParameter&) override { return absl::OkStatus(); }
  Status DropStep() override { return absl::OkStatus(); }
  uint64_t steps() const override { return 0; }
  uint64_t parameter_count() const override { return 0; }

  Mailbox<Work> begun;
  Mailbox<bool> go_on;

 private:
  StatusOr<std::optional<BoundaryTensor>> Compute(const Work& work) {
    begun.Push(work);
    if (!go_on.Take().value_or(false)) return absl::CancelledError("the test is over");
    return Tensor(shape_);
  }
  const codec::Shape shape_;
};

// Keeps the headers of what is sent.
class Recorder final : public transport::Link {
 public:
  const transport::LinkKey& key() const override { return key_; }
  void Send(transport::Lane, const transport::FrameView& frame, SendDone done) override {
    {
      const std::lock_guard lock(mutex_);
      headers_.push_back(*wire::DecodeTensorHeader(frame.header));
    }
    done(absl::OkStatus());
  }
  void Close(Deadline) override {}
  void GrowCredits(uint32_t) override {}
  transport::LinkStats stats() const override { return {}; }
  std::string Describe() const override { return "a recorder"; }

  // Slices of the tensors of `step`, in the order in which they were sent.
  std::vector<Slice> SentIn(uint64_t step) const {
    const std::lock_guard lock(mutex_);
    std::vector<Slice> slices;
    for (const wire::TensorHeader& header : headers_) {
      if (header.kind != wire::TensorKind::kChunk || header.step != Step(step)) continue;
      slices.emplace_back(header.microbatch, header.slice);
    }
    return slices;
  }

 private:
  const transport::LinkKey key_{RunId("tiny"), Stamp(1), EdgeId(0)};
  mutable std::mutex mutex_;
  std::vector<wire::TensorHeader> headers_;
};

struct PolicyCase {
  std::string name;
  std::string schedule;
  uint32_t depth, lead, slices = 1;
};

class ExecutorPolicyTest : public ::testing::TestWithParam<PolicyCase> {
 protected:
  void SetUp() override {
    spec_ = TinySpec(
        {"model.layers=3", "pipeline.stages=3", fmt::format("train.microbatches={}", kMicrobatches),
         fmt::format("train.steps={}", kSteps), "pipeline.schedule=" + GetParam().schedule,
         fmt::format("pipeline.slices={}", GetParam().slices)});
    shape_ = SliceShape(spec_);
    auto stage = std::make_unique<StepByStep>(shape_);
    stage_ = stage.get();
    resident_ = std::make_unique<ResidentStage>(ResidentIdentity(), std::move(stage));
    const auto port = [this](uint32_t edge, bool upstream) {
      const auto codec = std::shared_ptr<const codec::Codec>(*codec::ParseCodec("none"));
      return BoundaryPort::Create({.stamp = Stamp(1),
                                   .epoch = Epoch(1),
                                   .edge = EdgeId(edge),
                                   .upstream = upstream,
                                   .shape = shape_,
                                   .microbatches = kMicrobatches,
                                   .slices = GetParam().slices,
                                   .send_codec = codec,
                                   .receive_codec = codec,
                                   .on_health = [](const LinkHealth&) {}},
                                  &codec_thread_, events_);
    };
    auto up = port(0, true), down = port(1, false);
    up->Attach(gradients_);
    down->Attach(activations_);
    executor_ = std::make_unique<Executor>(
        ExecutorOptions{.spec = spec_,
                        .run = RunId("tiny"),
                        .cell = {.stage = 1},
                        .stages = 3,
                        .setting = {.depth = GetParam().depth, .activation_lead = GetParam().lead},
                        .resident = resident_.get(),
                        .ports = {up, down},
                        .events = events_,
                        .codec_thread = &codec_thread_,
                        .shards = &shards_,
                        .report = [](const v1::WorkerMessage&) {}});
    thread_ = std::thread([this] { result_ = executor_->Run(); });
  }
  void TearDown() override {
    executor_->Abort(absl::CancelledError("the test is over"));
    stage_->go_on.Push(false);
    if (thread_.joinable()) thread_.join();
  }

  // --- Events, given to the executor and to the policy beside it.
  void GiveInput(uint64_t step, StagePolicy* policy) {
    const Slice slice = order_.At(inputs_given_++, Direction::kForward);
    events_->Push(TensorArrived{Pass{Step(step)}, slice, Direction::kForward, Tensor(shape_)});
    policy->InputReady(slice);
  }
  void GiveGradient(uint64_t step, StagePolicy* policy) {
    const Slice slice = order_.At(gradients_given_++, Direction::kBackward);
    events_->Push(TensorArrived{Pass{Step(step)}, slice, Direction::kBackward, Tensor(shape_)});
    policy->GradientReady(slice);
  }
  // One that may come now; false: there is none.
  bool GiveOne(uint64_t step, StagePolicy* policy) {
    // A backward needs a microbatch that has gone forward completely.
    const uint32_t forward = forwards_ended_ / GetParam().slices * GetParam().slices;
    const bool input = inputs_given_ < all_, gradient = gradients_given_ < forward;
    if (input && (!gradient || random_() % 2 == 0)) {
      GiveInput(step, policy);
    } else if (gradient) {
      GiveGradient(step, policy);
    } else if (step < kSteps && early_ < all_) {
      // The stage before has begun the next step.
      events_->Push(TensorArrived{Pass{Step(step + 1)}, order_.At(early_++, Direction::kForward),
                                  Direction::kForward, Tensor(shape_)});
      return false;
    }
    return input || gradient;
  }
  void FlushCodec() {
    Mailbox<bool> flushed;
    codec_thread_.Post([&] { flushed.Push(true); });
    ASSERT_TRUE(flushed.Take().has_value());
  }

  void RunStep(uint64_t step) {
    StagePolicy policy({.kind = spec_.pipeline.schedule,
                        .stage = StageIndex(1),
                        .stages = 3,
                        .microbatches = kMicrobatches,
                        .slices = GetParam().slices,
                        .depth = GetParam().depth,
                        .activation_lead = GetParam().lead});
    forwards_ended_ = gradients_given_ = 0;
    uint32_t backwards_ended = 0;
    inputs_given_ = std::exchange(early_, 0);
    for (uint32_t place = 0; place < inputs_given_; ++place) {
      policy.InputReady(order_.At(place, Direction::kForward));
    }
    while (!policy.Done()) {
      const auto expected = policy.Next();
      if (!expected) {
        // One at a time: the executor begins with the first that lets it.
        ASSERT_TRUE(GiveOne(step, &policy)) << "the policy waits for what cannot come";
        continue;
      }
      const auto begun = stage_->begun.Take();
      ASSERT_TRUE(begun.has_value()) << "the executor does not begin what the policy says";
      ASSERT_EQ(begun->task, expected->task);
      ASSERT_EQ(begun->slice, expected->slice);
      policy.Begin(*expected);
      // What was encoded before this work began has left, or is kept as the policy says.
      FlushCodec();
      ASSERT_EQ(gradients_->SentIn(step).size(),
                std::min(backwards_ended, policy.GradientsThatMayLeave()));
      ASSERT_EQ(activations_->SentIn(step).size(), forwards_ended_);
      for (uint64_t count = random_() % 3; count > 0; --count) GiveOne(step, &policy);
      stage_->go_on.Push(true);
      policy.End(*expected);
      ++(expected->task == Task::kForward ? forwards_ended_ : backwards_ended);
    }
    events_->Push(NormArrived{Step(step), {.squared_norm = 1}});
    events_->Push(StepControlArrived{Step(step), {.squared_norm = 3}});
  }

  const SliceOrder order_{GetParam().slices};
  const uint32_t all_ = kMicrobatches * GetParam().slices;
  RunSpec spec_;
  codec::Shape shape_;
  std::mt19937_64 random_{11};
  CodecThread codec_thread_;
  NoShards shards_;
  std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
  std::shared_ptr<Recorder> gradients_ = std::make_shared<Recorder>(),
                            activations_ = std::make_shared<Recorder>();
  StepByStep* stage_ = nullptr;
  std::unique_ptr<ResidentStage> resident_;
  std::unique_ptr<Executor> executor_;
  std::thread thread_;
  Status result_;
  uint32_t inputs_given_ = 0, gradients_given_ = 0, forwards_ended_ = 0;
  uint32_t early_ = 0;  // inputs of the next step
};

TEST_P(ExecutorPolicyTest, DoesWhatThePolicySays) {
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ASSERT_NO_FATAL_FAILURE(RunStep(step)) << "step " << step;
  }
  thread_.join();
  EXPECT_EQ(result_, absl::OkStatus());
  FlushCodec();
  std::vector<Slice> down, up;
  for (uint32_t place = 0; place < all_; ++place) {
    down.push_back(order_.At(place, Direction::kForward));
    up.push_back(order_.At(place, Direction::kBackward));
  }
  for (uint64_t step = 1; step <= kSteps; ++step) {
    EXPECT_EQ(gradients_->SentIn(step), up);
    EXPECT_EQ(activations_->SentIn(step), down);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExecutorPolicyTest,
                         ::testing::Values(PolicyCase{"AsReady", "link-aware", kMicrobatches, 0},
                                           PolicyCase{"Shallow", "link-aware", 2, 0},
                                           PolicyCase{"Lead", "link-aware", kMicrobatches, 4},
                                           PolicyCase{"LongLead", "link-aware", kMicrobatches, 9},
                                           PolicyCase{"LeadOfAll", "link-aware", kMicrobatches, 10},
                                           PolicyCase{"ShallowLead", "link-aware", 3, 3},
                                           PolicyCase{"OneFOneB", "1f1b", kMicrobatches, 0},
                                           PolicyCase{"Gpipe", "gpipe", kMicrobatches, 9},
                                           PolicyCase{"Slices", "link-aware", kMicrobatches, 0, 4},
                                           PolicyCase{"SlicesShallow", "link-aware", 1, 0, 4},
                                           PolicyCase{"SlicesShallowLead", "link-aware", 3, 3, 4},
                                           PolicyCase{"SlicesOneFOneB", "1f1b", kMicrobatches, 0,
                                                      2},
                                           PolicyCase{"SlicesGpipe", "gpipe", kMicrobatches, 9, 2}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace longhaul::worker
