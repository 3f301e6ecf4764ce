#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "run/boundary/boundary_shape.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

constexpr int kMostRepetitions = 31;
// A GPU at rest needs so long to raise its clocks.
constexpr absl::Duration kGpuWarmUp = absl::Milliseconds(300);
// A GPU begins a layer's kernels while those before them run, so one layer alone takes longer than
// one among others. So does one of ranks that exchange whole boundaries at a stage's ends.
constexpr uint32_t kSeveralBlocks = 4;

bool ExchangesEnds(const StageOptions& options) {
  return !options.ranks.empty() && (options.group.sequence || options.group.shared_channels < 1);
}

uint32_t BlocksToTime(const StageOptions& options) {
  return options.device.cuda_index || ExchangesEnds(options)
             ? std::min(kSeveralBlocks, options.model.layers)
             : 1;
}

// The pass of one of `blocks` that took `all` together, without the `ends` around them.
MeasuredPass OfBlock(const MeasuredPass& all, uint32_t blocks, const MeasuredPass& ends,
                     uint32_t times_ends) {
  const auto each = [&](double value, double of_ends) {
    return std::max(value - times_ends * of_ends, 0.0) / blocks;
  };
  MeasuredPass block{.forward = each(all.forward, ends.forward),
                     .backward = each(all.backward, ends.backward),
                     .sent = (all.sent - ends.sent * times_ends) / blocks};
  if (all.collective_seconds) {
    block.collective_seconds = each(*all.collective_seconds, ends.collective_seconds.value_or(0));
  }
  return block;
}

// The lower quartile: whatever else the machine does makes a pass longer, never shorter, and a
// burst of it can outlast half of the repetitions.
double Typical(std::vector<double> values) {
  const auto quarter = values.begin() + static_cast<ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), quarter, values.end());
  return *quarter;
}

// Norm, scale and optimizer step, as at the end of a step of training.
Status Update(Stage& stage, const StageOptions& options, Step step) {
  LH_ASSIGN_OR_RETURN(const SquaredNorm norm, stage.AddSquaredGradientNorm(0));
  return stage.OptimizerStep(step, LearningRate(options.train, step), ClipScale(1, norm.sum));
}

// Runs a stage again and again for about `budget`; the first run, after which its parameters are
// updated once, warms everything up and does not count. What takes longer than the budget runs
// twice.
StatusOr<MeasuredPass> MeasurePasses(Stage& stage, const StageOptions& options,
                                     absl::Duration budget) {
  const size_t tokens = size_t{options.train.microbatch_size} * options.model.context;
  std::vector<int32_t> ids(tokens);
  for (size_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(i % options.vocabulary);
  const codec::Shape shape =
      SliceShape(options.model, options.train, options.group, options.slices);
  std::vector<float> boundary(shape.elements());
  for (size_t i = 0; i < boundary.size(); ++i) {
    boundary[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  }
  at::Tensor there;
  LH_RETURN_IF_ERROR(CallTorch("measuring", options.threads, [&]() -> Status {
    there = at::from_blob(boundary.data(), {static_cast<int64_t>(boundary.size())})
                .to(TorchDevice(options.device));
    return absl::OkStatus();
  }));
  const codec::TensorView view{there.const_data_ptr(), codec::Dtype::kF32, shape};
  codec::TensorView gradient = view;
  gradient.shape =
      SliceShape(options.model, options.train, options.group, options.slices, Direction::kBackward);
  const std::vector<int32_t> documents(options.masked_attention ? tokens : 0);
  const Stage::Input input{.tokens = ids,
                           .activation = view,
                           .targets = ids,
                           .documents = documents,
                           .counted = static_cast<double>(tokens)};

  std::vector<double> forward, backward, exchanging;
  uint32_t runs = 0;
  const auto run = [&](bool counts) -> Status {
    const Microbatch microbatch(runs++);
    const std::optional<double> exchanged = stage.collectives().seconds;
    const MonoTime start = Now();
    for (uint32_t slice = 0; slice < options.slices; ++slice) {
      LH_RETURN_IF_ERROR(stage.Forward({microbatch, slice}, input).status());
    }
    const MonoTime middle = Now();
    for (uint32_t slice = options.slices; slice-- > 0;) {
      LH_RETURN_IF_ERROR(stage.Backward({microbatch, slice}, gradient).status());
    }
    const MonoTime end = Now();
    if (!counts) return absl::OkStatus();
    forward.push_back(absl::ToDoubleSeconds(middle - start));
    backward.push_back(absl::ToDoubleSeconds(end - middle));
    if (exchanged) exchanging.push_back(*stage.collectives().seconds - *exchanged);
    return absl::OkStatus();
  };
  LH_RETURN_IF_ERROR(run(false));
  LH_RETURN_IF_ERROR(Update(stage, options, Step(1)));
  if (options.device.cuda_index) {
    const Deadline warm = Deadline::After(kGpuWarmUp);
    while (!warm.Expired()) LH_RETURN_IF_ERROR(run(false));
  }
  const CollectiveBytes sent = stage.collectives().sent;
  const Deadline deadline = Deadline::After(budget);
  for (int i = 0; i < 1 || (i < kMostRepetitions && !deadline.Expired()); ++i) {
    LH_RETURN_IF_ERROR(run(true));
  }
  MeasuredPass pass{.forward = Typical(forward), .backward = Typical(backward)};
  pass.sent = (stage.collectives().sent - sent) / forward.size();
  if (!exchanging.empty()) pass.collective_seconds = Typical(exchanging);
  return pass;
}

}  // namespace

StatusOr<MeasuredLayerTimes> MeasureLayerTimes(const StageOptions& options,
                                               const MakeStage& make_stage) {
  MeasuredLayerTimes times;
  // Parts of the model that are a stage each; the head's and the block's model is never tied.
  StageOptions part = options;
  part.model.tied = false;
  part.timing_only = true;
  part.first_layer = 0;

  part.first = true, part.last = false, part.layers = 0;
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, make_stage(part));
  LH_ASSIGN_OR_RETURN(times.embedding, MeasurePasses(*stage, part, absl::Milliseconds(100)));

  part.first = false, part.last = true, part.first_layer = part.model.layers;
  stage.reset();
  LH_ASSIGN_OR_RETURN(stage, make_stage(part));
  LH_ASSIGN_OR_RETURN(times.head, MeasurePasses(*stage, part, absl::Milliseconds(200)));

  part.last = false, part.first_layer = 0;
  stage.reset();
  MeasuredPass ends;
  if (ExchangesEnds(options)) {
    LH_ASSIGN_OR_RETURN(stage, make_stage(part));
    LH_ASSIGN_OR_RETURN(ends, MeasurePasses(*stage, part, absl::Milliseconds(100)));
    times.ends = ends;
    stage.reset();
  }
  part.layers = BlocksToTime(options);
  LH_ASSIGN_OR_RETURN(stage, make_stage(part));
  LH_ASSIGN_OR_RETURN(const MeasuredPass blocks,
                      MeasurePasses(*stage, part, absl::Milliseconds(500)));
  // Blocks that are recomputed one by one have ends of their own.
  times.block =
      OfBlock(blocks, part.layers, ends, options.recompute == Recompute::kBlocks ? part.layers : 1);
  times.forward_collective = stage->collectives().forward;
  times.backward_collective = stage->collectives().backward;

  const MonoTime start = Now();
  LH_RETURN_IF_ERROR(Update(*stage, part, Step(2)));
  times.optimizer_seconds_per_parameter =
      absl::ToDoubleSeconds(Now() - start) / static_cast<double>(stage->parameter_count());
  return times;
}

}  // namespace longhaul::worker
