#include "coordinator/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "coordinator/planner/explain.h"
#include "coordinator/planner/links.h"
#include "coordinator/planner/memory.h"
#include "coordinator/planner/order.h"
#include "coordinator/planner/prediction.h"
#include "coordinator/planner/split.h"

namespace longhaul::coordinator {
namespace {

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request),
        spec_(request.spec),
        stages_(static_cast<uint32_t>(request.workers.size())) {}

  StatusOr<v1::Plan> Make();

 private:
  bool IsLast(uint32_t stage) const { return stage + 1 == stages_; }
  double Forward(uint32_t stage, uint32_t layers) const;
  double Backward(uint32_t stage, uint32_t layers) const;
  double Optimizer(uint32_t stage, uint32_t layers) const;
  StageMemory Memory(uint32_t stage, uint32_t layers) const;
  // The depth that this stage must be able to hold.
  uint32_t LeastDepth(uint32_t stage) const;
  bool Fits(uint32_t stage, uint32_t layers) const;
  uint32_t DepthOf(uint32_t stage, uint32_t layers) const;

  Status Check() const;
  StatusOr<std::vector<uint32_t>> Split() const;
  // Where it fits the same workers: then no shard has to move.
  std::optional<std::vector<uint32_t>> SplitOfCheckpoint() const;
  Status DoesNotFit(const std::vector<uint32_t>& layers) const;
  void AddStages(const std::vector<uint32_t>& layers, v1::Plan* plan) const;

  const PlanRequest& request_;
  const RunSpec& spec_;
  const uint32_t stages_;
};

double Planner::Forward(uint32_t stage, uint32_t layers) const {
  const v1::LayerTimes& times = request_.workers[stage].times;
  return layers * times.block_forward() + (stage == 0 ? times.embedding_forward() : 0) +
         (IsLast(stage) ? times.head_forward() : 0);
}

double Planner::Backward(uint32_t stage, uint32_t layers) const {
  const v1::LayerTimes& times = request_.workers[stage].times;
  return layers * times.block_backward() + (stage == 0 ? times.embedding_backward() : 0) +
         (IsLast(stage) ? times.head_backward() : 0);
}

double Planner::Optimizer(uint32_t stage, uint32_t layers) const {
  if (spec_.replay) {
    return absl::ToDoubleSeconds(spec_.replay->optimizer * layers / spec_.model.layers);
  }
  const uint64_t parameters =
      StageParameters(spec_.model, request_.data.vocabulary(), layers, stage == 0, IsLast(stage));
  return static_cast<double>(parameters) *
         request_.workers[stage].times.optimizer_seconds_per_parameter();
}

StageMemory Planner::Memory(uint32_t stage, uint32_t layers) const {
  return MemoryOf(spec_, request_.data.vocabulary(), layers, stage == 0, IsLast(stage),
                  request_.workers[stage].on_gpu);
}

uint32_t Planner::LeastDepth(uint32_t stage) const {
  switch (spec_.pipeline.schedule) {
    case ScheduleKind::kGpipe:
      return spec_.train.microbatches;
    case ScheduleKind::kOneFOneB:
      return std::min(spec_.train.microbatches, spec_.pipeline.depth.value_or(stages_ - stage));
    case ScheduleKind::kLinkAware:
      return std::min(spec_.train.microbatches, spec_.pipeline.depth.value_or(1));
  }
  return 1;
}

bool Planner::Fits(uint32_t stage, uint32_t layers) const {
  const uint64_t available = request_.workers[stage].memory_bytes;
  return available == 0 || Memory(stage, layers).At(LeastDepth(stage)) <= available;
}

uint32_t Planner::DepthOf(uint32_t stage, uint32_t layers) const {
  const uint32_t least = LeastDepth(stage);
  const uint64_t available = request_.workers[stage].memory_bytes;
  if (spec_.pipeline.schedule != ScheduleKind::kLinkAware || spec_.pipeline.depth) return least;
  if (available == 0) return spec_.train.microbatches;
  const StageMemory memory = Memory(stage, layers);
  if (available <= memory.fixed) return least;
  const uint64_t fitting = (available - memory.fixed) / std::max<uint64_t>(memory.per_flight, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(fitting, least, spec_.train.microbatches));
}

Status Planner::Check() const {
  if (stages_ == 0) return absl::InvalidArgumentError("a plan needs at least one worker");
  if (stages_ > spec_.model.layers) {
    return absl::InvalidArgumentError(
        fmt::format("{} stages are more than the model's {} layers; every stage needs one: ask for "
                    "fewer pipeline.stages",
                    stages_, spec_.model.layers));
  }
  if (spec_.train.microbatches == 0) {
    return absl::InvalidArgumentError("train.microbatches is 0; a step needs at least one");
  }
  return absl::OkStatus();
}

StatusOr<std::vector<uint32_t>> Planner::Split() const {
  if (auto split = SplitOfCheckpoint()) return *std::move(split);
  const auto time = [this](uint32_t stage, uint32_t layers) {
    return spec_.train.microbatches * (Forward(stage, layers) + Backward(stage, layers)) +
           Optimizer(stage, layers);
  };
  auto split = BalanceLayers(stages_, spec_.model.layers,
                             [&](uint32_t stage, uint32_t layers) -> std::optional<double> {
                               if (!Fits(stage, layers)) return std::nullopt;
                               return time(stage, layers);
                             });
  if (split) return *std::move(split);
  return DoesNotFit(*BalanceLayers(stages_, spec_.model.layers, time));
}

std::optional<std::vector<uint32_t>> Planner::SplitOfCheckpoint() const {
  if (!request_.resume || request_.resume->stages_size() != static_cast<int>(stages_)) {
    return std::nullopt;
  }
  std::vector<uint32_t> layers;
  uint32_t total = 0;
  for (const v1::StagePlan& stage : request_.resume->stages()) {
    const auto index = static_cast<uint32_t>(layers.size());
    if (request_.workers[index].id.value() != stage.worker_id() || stage.layers() == 0 ||
        !Fits(index, stage.layers())) {
      return std::nullopt;
    }
    layers.push_back(stage.layers());
    total += stage.layers();
  }
  if (total != spec_.model.layers) return std::nullopt;
  return layers;
}

Status Planner::DoesNotFit(const std::vector<uint32_t>& layers) const {
  uint32_t worst = 0;
  double worst_ratio = 0;
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const uint64_t available = request_.workers[stage].memory_bytes;
    if (available == 0) continue;
    const double ratio = static_cast<double>(Memory(stage, layers[stage]).At(LeastDepth(stage))) /
                         static_cast<double>(available);
    if (ratio > worst_ratio) {
      worst = stage;
      worst_ratio = ratio;
    }
  }
  const uint64_t needed = Memory(worst, layers[worst]).At(LeastDepth(worst));
  return absl::FailedPreconditionError(fmt::format(
      "stage {} ({} of {} layers, {} microbatches in flight) needs {} ({} bytes) and worker {} has "
      "{} ({} bytes), and no other split fits either: use more or larger workers, "
      "pipeline.recompute, or a smaller train.microbatch_size or model",
      worst, layers[worst], spec_.model.layers, LeastDepth(worst),
      FormatBytes(static_cast<double>(needed)), needed, request_.workers[worst].name,
      FormatBytes(static_cast<double>(request_.workers[worst].memory_bytes)),
      request_.workers[worst].memory_bytes));
}

void Planner::AddStages(const std::vector<uint32_t>& layers, v1::Plan* plan) const {
  uint32_t first_layer = 0;
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const CandidateWorker& worker = request_.workers[stage];
    v1::StagePlan& one = *plan->add_stages();
    one.set_stage(stage);
    one.set_worker_id(worker.id.value());
    one.set_incarnation(worker.incarnation.value());
    one.set_worker_name(worker.name);
    one.set_first_layer(first_layer);
    one.set_layers(layers[stage]);
    one.set_depth(DepthOf(stage, layers[stage]));
    one.set_threads(spec_.pipeline.threads_per_stage);
    one.set_memory_available_bytes(worker.memory_bytes);
    one.mutable_endpoints()->Add(worker.endpoints.begin(), worker.endpoints.end());
    one.set_forward_seconds(Forward(stage, layers[stage]));
    one.set_backward_seconds(Backward(stage, layers[stage]));
    one.set_optimizer_seconds(Optimizer(stage, layers[stage]));
    first_layer += layers[stage];
  }
}

StatusOr<v1::Plan> Planner::Make() {
  LH_RETURN_IF_ERROR(Check());
  v1::Plan plan;
  plan.set_run_id(request_.run.value());
  plan.set_epoch(request_.epoch.value());
  plan.set_run_yaml(ToYaml(spec_));
  *plan.mutable_data() = request_.data;
  if (request_.resume) plan.set_start_step(request_.resume->step());
  LH_ASSIGN_OR_RETURN(const std::vector<uint32_t> layers, Split());
  AddStages(layers, &plan);
  LH_RETURN_IF_ERROR(AddLinks(request_, &plan));
  LH_RETURN_IF_ERROR(AddMessages(request_, &plan));
  SetNetwork(NetworkFor(request_), &plan);
  std::vector<uint32_t> most;
  for (const v1::StagePlan& stage : plan.stages()) most.push_back(stage.depth());
  LH_RETURN_IF_ERROR(ChooseOrder(spec_, &plan));
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    v1::StagePlan& one = *plan.mutable_stages(static_cast<int>(stage));
    const StageMemory memory = Memory(stage, layers[stage]);
    one.set_memory_bytes(memory.At(one.depth()));
    one.set_memory_per_flight_bytes(memory.per_flight);
    if (request_.workers[stage].memory_bytes > 0) one.set_depth_by_memory(most[stage]);
  }
  LH_RETURN_IF_ERROR(AddPrediction(spec_, &plan));
  v1::Prediction& prediction = *plan.mutable_prediction();
  if (request_.assumed_line_bits_per_second) {
    prediction.set_assumed_line_bits_per_second(*request_.assumed_line_bits_per_second);
  }
  if (request_.assumed_delay) {
    prediction.set_assumed_delay_seconds(absl::ToDoubleSeconds(*request_.assumed_delay));
  }
  if (request_.with_codec_table) LH_RETURN_IF_ERROR(AddCodecTable(request_, most, &plan));
  plan.set_explanation(Explain(request_, plan));
  return plan;
}

}  // namespace

StatusOr<v1::Plan> MakePlan(const PlanRequest& request) {
  return Planner(request).Make();
}

std::optional<uint32_t> StageCount(const RunSpec& spec, uint32_t free_workers) {
  const uint32_t wanted = spec.pipeline.stages.value_or(std::min(free_workers, spec.model.layers));
  if (wanted == 0 || wanted > free_workers) return std::nullopt;
  return wanted;
}

}  // namespace longhaul::coordinator
