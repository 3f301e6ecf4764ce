#include "worker/stage/replay_stage.h"

#include <fmt/format.h>

#include <utility>

#include "base/precise_sleep.h"
#include "run/boundary/boundary_shape.h"
#include "run/model/family.h"
#include "worker/stage/model/init.h"
#include "worker/stage/noise.h"
#include "worker/stage/passes/slice_turns.h"

namespace longhaul::worker {
namespace {

class ReplayStage final : public Stage {
 public:
  explicit ReplayStage(const StageOptions& options) : options_(options), turns_(options.slices) {
    const ReplaySpec& times = *options.replay;
    forward_ = options.layers * times.block_forward;
    backward_ = options.layers * times.block_backward;
    if (options.recompute != Recompute::kNone) backward_ += forward_;
    if (options.first) {
      forward_ += times.embedding_forward;
      backward_ += times.embedding_backward;
    }
    if (options.last) {
      forward_ += times.head_forward;
      backward_ += times.head_backward;
    }
    // A slice takes an equal share of its microbatch.
    forward_ /= options.slices;
    backward_ /= options.slices;
    block_backward_ = times.block_backward / options.slices;
    if (options.recompute != Recompute::kNone) {
      block_backward_ += times.block_forward / options.slices;
    }
    if (options.last) head_backward_ = times.head_backward / options.slices;
    // Embedding and head are few of a large model's parameters.
    optimizer_ = times.optimizer * options.layers / options.model.layers;
    if (!options.first || !options.last) {
      noise_ = NoiseTensor(SliceShape(options.model, options.train, options.group, options.slices));
    }
  }

  StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& /*input*/) override {
    LH_RETURN_IF_ERROR(turns_.CheckForward(slice));
    turns_.TakeForward(slice);
    Work(forward_);
    return Output(!options_.last);
  }

  StatusOr<double> Loss(Slice /*slice*/) const override { return 0; }

  StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& /*output_gradient*/) override {
    LH_RETURN_IF_ERROR(turns_.CheckBackward(slice));
    turns_.TakeBackward(slice);
    const auto final = std::exchange(final_, nullptr);
    if (!final) {
      Work(backward_);
      return Output(!options_.first);
    }
    const MonoTime began = Now();
    absl::Duration done = head_backward_;
    for (uint32_t block = options_.layers; block > 0; --block) {
      SleepPreciselyUntil(began + done);
      final(block);
      done += block_backward_;
    }
    SleepPreciselyUntil(began + backward_);
    return Output(!options_.first);
  }

  // As a stage that computes on a CPU.
  bool TellWhatIsFinal(std::function<void(uint32_t)> final) override {
    if (options_.train.microbatches * options_.slices == 1) return false;
    final_ = std::move(final);
    return true;
  }

  StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& /*input*/,
                                                   double* loss) override {
    LH_RETURN_IF_ERROR(turns_.CheckEvaluation(slice));
    turns_.TakeEvaluation(slice);
    *loss = 0;
    Work(forward_);
    return Output(!options_.last);
  }

  StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const override {
    return SquaredNorm{.sum = sum};
  }

  Status OptimizerStep(Step step, double /*learning_rate*/, double /*gradient_scale*/) override {
    Work(optimizer_);
    step_ = step.value();
    turns_.EndStep();
    return absl::OkStatus();
  }

  Status SkipStep(Step step) override {
    final_ = nullptr;
    step_ = step.value();
    turns_.EndStep();
    return absl::OkStatus();
  }

  // Gradients are noise; nothing is learned from them.
  StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn /*memory*/) override {
    if (shared_.empty()) MakeShared();
    std::vector<SharedParameter> shared;
    for (Shared& one : shared_) {
      shared.push_back({.name = one.name,
                        .shape = {static_cast<int64_t>(one.values.size())},
                        .gradient = one.gradients,
                        .value = one.values});
    }
    return shared;
  }
  Status TakeSharedValues() override { return absl::OkStatus(); }
  Status EndSharedStep(Step step) override {
    turns_.EndStep();
    step_ = step.value();
    return absl::OkStatus();
  }

  StatusOr<std::unique_ptr<Stage>> MakeTwin() const override {
    auto twin = std::make_unique<ReplayStage>(options_);
    twin->step_ = step_;
    return twin;
  }
  Status TakeTurnFrom(Stage* twin) override {
    step_ = twin->steps();
    return absl::OkStatus();
  }

  StatusOr<StageSnapshot> Snapshot() const override {
    return StageSnapshot{.step = step_, .parameters = {}, .moments = {}};
  }
  Status Restore(const StageSnapshot& snapshot) override {
    step_ = snapshot.step;
    return DropStep();
  }
  Status Load(const ReadParameter& /*read*/) override { return absl::OkStatus(); }
  Status DropStep() override {
    final_ = nullptr;
    turns_.EndStep();
    return absl::OkStatus();
  }
  uint64_t steps() const override { return step_; }
  uint64_t parameter_count() const override { return 0; }

 private:
  struct Shared {
    std::string name;
    std::vector<float> gradients, values;
  };
  void MakeShared() {
    for (const model::PlacedParameter& placed : options_.parameters()) {
      if (placed.parameter.frozen || placed.parameter.balances) continue;
      Shared& one =
          shared_.emplace_back(Shared{.name = placed.Name(), .gradients = {}, .values = {}});
      one.gradients.resize(placed.parameter.shape.elements());
      one.values.resize(one.gradients.size());
      FillNormal(options_.train.seed, one.name, 1, one.gradients);
    }
  }
  static void Work(absl::Duration duration) { SleepPreciselyUntil(Now() + duration); }
  std::optional<BoundaryTensor> Output(bool wanted) const {
    return wanted ? std::optional(noise_) : std::nullopt;
  }

  const StageOptions options_;
  absl::Duration forward_, backward_, optimizer_;
  absl::Duration block_backward_, head_backward_;  // of `backward_`
  std::function<void(uint32_t)> final_;            // of the next Backward; or null
  BoundaryTensor noise_;
  std::vector<Shared> shared_;  // where replicas step the stage together
  SliceTurns turns_;
  uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Stage> MakeReplayStage(const StageOptions& options) {
  return std::make_unique<ReplayStage>(options);
}

}  // namespace longhaul::worker
