// Two stages train over a loopback link, and gradients of some steps are not finite: with
// train.on_nonfinite: skip both leave out the same steps, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/registry.h"
#include "tests/support/mailbox.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/pipeline/no_shards.h"
#include "tests/unit/worker/tiny_run.h"
#include "transport/p2p/loopback/factory.h"
#include "worker/pipeline/executor.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Mailbox;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

const transport::LinkKey kLinkOfTwo{RunId("tiny"), Stamp(1), EdgeId(0)};

// What goes wrong in the last stage, in these steps.
struct Faults {
  std::set<uint64_t> gradient;  // that it sends up is not a number
  std::set<uint64_t> loss;      // is infinite, and no gradient is
};

// A last stage with faults.
class FaultyStage final : public Stage {
 public:
  FaultyStage(std::unique_ptr<Stage> inner, Faults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) override {
    return inner_->Forward(slice, input);
  }
  StatusOr<double> Loss(Slice slice) const override {
    if (faults_.loss.contains(inner_->steps() + 1)) return std::numeric_limits<double>::infinity();
    return inner_->Loss(slice);
  }
  StatusOr<std::optional<BoundaryTensor>> Backward(Slice slice,
                                                   const codec::TensorView& gradient) override {
    LH_ASSIGN_OR_RETURN(std::optional<BoundaryTensor> made, inner_->Backward(slice, gradient));
    if (!faults_.gradient.contains(inner_->steps() + 1)) return made;
    auto values = std::make_shared<std::vector<float>>(made->view.shape.elements(), NAN);
    return BoundaryTensor{{values->data(), codec::Dtype::kF32, made->view.shape}, values};
  }
  StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                   double* loss) override {
    return inner_->Evaluate(slice, input, loss);
  }
  StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const override {
    return inner_->AddSquaredGradientNorm(sum);
  }
  Status OptimizerStep(Step step, double learning_rate, double gradient_scale) override {
    return inner_->OptimizerStep(step, learning_rate, gradient_scale);
  }
  Status SkipStep(Step step) override { return inner_->SkipStep(step); }
  StatusOr<StageSnapshot> Snapshot() const override { return inner_->Snapshot(); }
  Status Restore(const StageSnapshot& snapshot) override { return inner_->Restore(snapshot); }
  Status Load(const ReadParameter& read) override { return inner_->Load(read); }
  Status DropStep() override { return inner_->DropStep(); }
  uint64_t steps() const override { return inner_->steps(); }
  uint64_t parameter_count() const override { return inner_->parameter_count(); }

 private:
  const std::unique_ptr<Stage> inner_;
  const Faults faults_;
};

// Keeps every snapshot, by its step.
class Snapshots final : public NoShards {
 public:
  StatusOr<std::vector<ShardFile>> Write(const RunId&, const ShardOwner&,
                                         const StageSnapshot& snapshot) override {
    const std::lock_guard lock(mutex_);
    by_step[snapshot.step] = snapshot;
    return std::vector<ShardFile>{{"stage.params.safetensors", 1, "hash"}};
  }
  std::map<uint64_t, StageSnapshot> by_step;  // once the stage is done

 private:
  std::mutex mutex_;
};

bool SameArrays(const std::vector<NamedArray>& one, const std::vector<NamedArray>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const NamedArray& a, const NamedArray& b) {
                      return a.name == b.name && a.values == b.values;
                    });
}

class SkippedSteps : public ::testing::Test {
 protected:
  struct Cell {
    std::unique_ptr<ResidentStage> resident;
    std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>();
    std::shared_ptr<BoundaryPort> port;
    CodecThread codec_thread;  // outlives the transport
    std::unique_ptr<transport::Transport> transport;
    Snapshots shards;
    Mailbox<v1::WorkerMessage> reports;
    std::unique_ptr<Executor> executor;
    Status result;
    // Reports of steps, in order, once the stage is done.
    std::vector<v1::StepReport> StepReports() {
      std::vector<v1::StepReport> steps;
      while (!reports.empty()) {
        const v1::WorkerMessage message = *reports.Take();
        if (message.has_step()) steps.push_back(message.step());
      }
      return steps;
    }
  };

  // Trains to the end. A checkpoint of each step is taken.
  void Train(std::vector<std::string> overrides, const Faults& faults) {
    overrides.emplace_back("checkpoint.every=1");
    const RunSpec spec = TinySpec(overrides);
    const codec::Shape shape{spec.train.microbatch_size, spec.model.context, spec.model.hidden};
    const std::string tokens = WriteTinyTokens(folder_.path());
    StatusOr<TokenFile> file = TokenFile::Open(folder_.path() + "/" + tokens, /*verify=*/true);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto text = std::make_shared<const TokenFile>(*std::move(file));
    const auto codec = std::shared_ptr<const codec::Codec>(*codec::ParseCodec("none"));
    for (uint32_t stage = 0; stage < 2; ++stage) {
      Cell& cell = cells_[stage];
      StatusOr<std::unique_ptr<Stage>> made = Stage::Create({.model = spec.model,
                                                             .train = spec.train,
                                                             .vocabulary = 256,
                                                             .first_layer = stage,
                                                             .layers = 1,
                                                             .first = stage == 0,
                                                             .last = stage == 1});
      ASSERT_TRUE(made.ok()) << made.status();
      std::unique_ptr<Stage> model = *std::move(made);
      if (stage == 1) model = std::make_unique<FaultyStage>(std::move(model), faults);
      cell.resident = std::make_unique<ResidentStage>(ResidentIdentity(), std::move(model));
      cell.transport = *transport::loopback::CreateTransport({});
      cell.port = BoundaryPort::Create({.stamp = kLinkOfTwo.stamp,
                                        .epoch = Epoch(1),
                                        .edge = kLinkOfTwo.edge,
                                        .peer = {.stage = 1 - stage},
                                        .upstream = stage == 1,
                                        .shape = shape,
                                        .microbatches = spec.train.microbatches,
                                        .send_codec = codec,
                                        .receive_codec = codec,
                                        .on_health = [](const LinkHealth&) {}},
                                       &cell.codec_thread, cell.events);
      cell.executor = std::make_unique<Executor>(ExecutorOptions{
          .spec = spec,
          .run = kLinkOfTwo.run,
          .cell = {.stage = stage},
          .stages = 2,
          .setting = {.depth = 2},
          .resident = cell.resident.get(),
          .batches =
              std::make_unique<Batches>(spec, WindowsOfFile(text, spec.model.context), nullptr),
          .ports = {cell.port},
          .events = cell.events,
          .codec_thread = &cell.codec_thread,
          .shards = &cell.shards,
          .report = [&cell](v1::WorkerMessage message) { cell.reports.Push(std::move(message)); }});
    }
    Connect();
    std::thread below([this] { cells_[1].result = cells_[1].executor->Run(); });
    cells_[0].result = cells_[0].executor->Run();
    below.join();
  }

  void Connect() {
    Mailbox<std::shared_ptr<transport::Link>> expected, dialled;
    const auto into = [](Mailbox<std::shared_ptr<transport::Link>>& mailbox) {
      return [&mailbox](const StatusOr<std::shared_ptr<transport::Link>>& link) {
        EXPECT_TRUE(link.ok()) << link.status();
        mailbox.Push(link.value_or(nullptr));
      };
    };
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    cells_[0].transport->Expect(kLinkOfTwo, "a secret", cells_[0].port, {}, deadline,
                                into(expected));
    cells_[1].transport->Dial({cells_[0].transport->address()}, kLinkOfTwo, "a secret",
                              cells_[1].port, {}, deadline, into(dialled));
    cells_[0].port->Attach(expected.Take().value_or(nullptr));
    cells_[1].port->Attach(dialled.Take().value_or(nullptr));
  }

  // Both stages have skipped these steps, and no others of `steps`.
  void ExpectSkipped(const std::set<uint64_t>& skipped, uint64_t steps) {
    for (Cell& cell : cells_) {
      EXPECT_EQ(cell.result, absl::OkStatus());
      const std::vector<v1::StepReport> reports = cell.StepReports();
      ASSERT_EQ(reports.size(), steps);
      ASSERT_EQ(cell.shards.by_step.size(), steps);
      for (uint64_t step = 1; step <= steps; ++step) {
        EXPECT_EQ(reports[step - 1].step(), step);
        EXPECT_EQ(reports[step - 1].skipped(), skipped.contains(step)) << step;
        if (reports[step - 1].has_norm()) {
          EXPECT_EQ(reports[step - 1].learning_rate() == 0, skipped.contains(step)) << step;
        }
        if (step == 1) continue;
        const StageSnapshot &before = cell.shards.by_step[step - 1],
                            &after = cell.shards.by_step[step];
        EXPECT_EQ(SameArrays(before.parameters, after.parameters), skipped.contains(step)) << step;
        EXPECT_EQ(SameArrays(before.moments, after.moments), skipped.contains(step)) << step;
      }
    }
  }

  TempDir folder_;
  std::array<Cell, 2> cells_;
};

TEST_F(SkippedSteps, AreTheSameOnAllStages) {
  Train({"train.on_nonfinite=skip", "train.steps=6"}, {.gradient = {2, 5}, .loss = {4}});
  ExpectSkipped({2, 4, 5}, 6);
}

TEST_F(SkippedSteps, EndTheRunWhereTooManyFollowEachOther) {
  Faults faults;
  for (uint64_t step = 3; step <= 20; ++step) faults.gradient.insert(step);
  Train({"train.on_nonfinite=skip", "train.steps=20"}, faults);
  for (Cell& cell : cells_) {
    EXPECT_EQ(cell.result.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(Message(cell.result)),
                HasSubstr("norm of step 13 is not finite, so nothing was updated, as in the 10 "
                          "steps before, which were skipped"));
    const std::vector<v1::StepReport> reports = cell.StepReports();
    ASSERT_EQ(reports.size(), 13u);
    EXPECT_TRUE(reports[11].skipped());
    EXPECT_FALSE(reports[12].skipped()) << "the coordinator would take it for harmless";
    EXPECT_EQ(cell.resident->model().steps(), 12u);
  }
}

TEST_F(SkippedSteps, AreCountedAnewAfterOneThatIsNot) {
  Faults faults;
  for (uint64_t step = 2; step <= 22; ++step) {
    if (step != 12) faults.gradient.insert(step);
  }
  Train({"train.on_nonfinite=skip", "train.steps=23"}, faults);
  ExpectSkipped(faults.gradient, 23);
}

TEST_F(SkippedSteps, AreNoneWithoutTheKey) {
  Train({"train.steps=6"}, {.gradient = {2}});
  for (Cell& cell : cells_) {
    EXPECT_THAT(std::string(Message(cell.result)),
                HasSubstr("norm of step 2 is not finite, so nothing was updated; a lower"));
    EXPECT_EQ(cell.resident->model().steps(), 1u);
  }
}

}  // namespace
}  // namespace longhaul::worker
