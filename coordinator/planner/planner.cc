#include "coordinator/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "coordinator/planner/copy_interval.h"
#include "coordinator/planner/explain.h"
#include "coordinator/planner/links.h"
#include "coordinator/planner/memory.h"
#include "coordinator/planner/order.h"
#include "coordinator/planner/prediction.h"
#include "coordinator/planner/ranks.h"
#include "coordinator/planner/replicas.h"
#include "coordinator/planner/slices.h"
#include "coordinator/planner/split.h"
#include "run/model/share.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

const v1::GroupTimes* TimesOfGroup(const CandidateWorker& worker, const GroupSpec& wanted) {
  for (const v1::GroupTimes& group : worker.times.groups()) {
    if (wanted.tensor > 1 && group.tensor() == wanted.tensor &&
        std::max(group.expert(), 1u) == wanted.expert) {
      return &group;
    }
  }
  return nullptr;
}

Status CheckTimed(const CandidateWorker& worker, const GroupSpec& wanted) {
  const v1::GroupTimes* const group = TimesOfGroup(worker, wanted);
  const std::string ranks =
      fmt::format("{} ranks{}", wanted.tensor,
                  wanted.expert > 1 ? fmt::format(" with experts in {} parts", wanted.expert) : "");
  if (group == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("expected worker {} to have timed a stage of {}, got times of other groups or "
                    "one device alone: it is of an older version; update it, or set group.tensor "
                    "to 1",
                    worker.name, ranks));
  }
  if (group->refused().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} on worker {}: {}", ranks, worker.name, group->refused()));
}

// How ranks divide experts, where a plan tries numbers of ranks of its own.
Status CheckExperts(const RunSpec& spec) {
  const std::vector<uint32_t> parts = model::PartsOfExperts(spec.model, spec.group.tensor);
  if (std::ranges::find(parts, spec.group.expert) != parts.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "group.expert: expected a number that divides the {} rank{} of a stage and the {} experts of "
      "a block (model.experts), got {}; choose another number, or auto",
      spec.group.tensor, spec.group.tensor == 1 ? "" : "s",
      spec.model.has_experts() ? spec.model.experts : 0, spec.group.expert));
}

// A GPU records its passes, each slice of which does other work.
Status CheckSlices(const RunSpec& spec, const std::vector<CandidateWorker>& workers) {
  const uint32_t slices = spec.pipeline.SlicesNow();
  if (slices == 1 || spec.replay) return absl::OkStatus();
  for (const CandidateWorker& worker : workers) {
    if (!worker.on_gpu) continue;
    return absl::FailedPreconditionError(fmt::format(
        "worker {} computes on a GPU, which takes microbatches whole, and pipeline.slices is {}; "
        "set it to 1, or start the workers with --device cpu",
        worker.name, slices));
  }
  return absl::OkStatus();
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request),
        spec_(request.spec),
        stages_(static_cast<uint32_t>(request.workers.size())) {}

  StatusOr<Plan> Make(const std::stop_token& stop);
  StatusOr<std::vector<uint32_t>> SplitOrRefuse() const {
    LH_RETURN_IF_ERROR(Check());
    return Split();
  }

 private:
  bool IsLast(uint32_t stage) const { return chain::IsLast(stage, stages_); }
  Roles RolesOf(uint32_t stage) const {
    return {.embedding = chain::IsFirst(stage), .head = IsLast(stage)};
  }
  // Of one rank. Several on a CPU share its cores.
  uint32_t Threads(uint32_t stage) const { return ThreadsOfRank(spec_, request_.workers[stage]); }
  // As the stage's worker timed it with the run's number of ranks. Null: of one rank.
  const v1::GroupTimes* Group(uint32_t stage) const {
    return TimesOfGroup(request_.workers[stage], spec_.group);
  }
  // How often a stage of so many layers has what a group's `ends` are, beside those that are in the
  // times of its embedding and its head: -1 where it has both of these.
  int Ends(uint32_t stage, uint32_t layers) const;
  std::optional<GroupEstimate> EstimateOfGroup(uint32_t stage, uint32_t layers) const;
  // What these take of so many blocks and of what else the stage holds.
  double OfParts(uint32_t stage, uint32_t layers, double embedding, double block,
                 double head) const;
  double Forward(uint32_t stage, uint32_t layers) const;
  double Backward(uint32_t stage, uint32_t layers) const;
  double Optimizer(uint32_t stage, uint32_t layers) const;
  // What the stage's part of the model takes. A model with many experts has so many parameters that
  // to sum them up anew for every split takes longer than all else.
  struct Size {
    StageMemory memory;
    uint64_t parameters = 0;
  };
  const Size& SizeOf(uint32_t stage, uint32_t layers) const;
  const StageMemory& Memory(uint32_t stage, uint32_t layers) const {
    return SizeOf(stage, layers).memory;
  }
  // The depth that this stage must be able to hold.
  uint32_t LeastDepth(uint32_t stage) const;
  bool Fits(uint32_t stage, uint32_t layers) const;
  // What a stage needs at least of one kind of memory, and its worker has of that. 0: unknown.
  struct Need {
    uint64_t needed = 0, available = 0;
    bool fits() const { return available == 0 || needed <= available; }
    double ratio() const {
      return available == 0 ? 0 : static_cast<double>(needed) / static_cast<double>(available);
    }
  };
  Need OfDevice(uint32_t stage, uint32_t layers) const;
  Need OfHost(uint32_t stage, uint32_t layers) const;
  uint32_t DepthOf(uint32_t stage, uint32_t layers) const;

  Status Check() const;
  StatusOr<std::vector<uint32_t>> Split() const;
  StatusOr<std::vector<uint32_t>> FixedSplit() const;
  // Where it fits the same workers: then no shard has to move.
  std::optional<std::vector<uint32_t>> SplitOfCheckpoint() const;
  Status DoesNotFit(const std::vector<uint32_t>& layers) const;
  void AddCells(const std::vector<uint32_t>& layers, Plan* plan) const;
  // What a plan needs once the depths are chosen, of which each cell could hold `most`.
  void AddMemory(const std::vector<uint32_t>& most, Plan* plan) const;

  const PlanRequest& request_;
  const RunSpec& spec_;
  const uint32_t stages_;
  // By layers, embedding, head, and whether it is on a GPU.
  mutable std::map<std::tuple<uint32_t, bool, bool, bool>, Size> sizes_;
};

double Planner::OfParts(uint32_t stage, uint32_t layers, double embedding, double block,
                        double head) const {
  return layers * block + (chain::IsFirst(stage) ? embedding : 0) + (IsLast(stage) ? head : 0);
}

int Planner::Ends(uint32_t stage, uint32_t layers) const {
  const bool block_by_block = spec_.pipeline.recompute == Recompute::kBlocks;
  return (block_by_block ? static_cast<int>(layers) : 1) - (chain::IsFirst(stage) ? 1 : 0) -
         (IsLast(stage) ? 1 : 0);
}

double Planner::Forward(uint32_t stage, uint32_t layers) const {
  if (const v1::GroupTimes* group = Group(stage)) {
    const double parts = OfParts(stage, layers, group->embedding().forward(),
                                 group->block().forward(), group->head().forward());
    return std::max(parts + Ends(stage, layers) * group->ends().forward(), 0.0);
  }
  const v1::LayerTimes& times = request_.workers[stage].times;
  return OfParts(stage, layers, times.embedding_forward(), times.block_forward(),
                 times.head_forward());
}

double Planner::Backward(uint32_t stage, uint32_t layers) const {
  if (const v1::GroupTimes* group = Group(stage)) {
    const double parts = OfParts(stage, layers, group->embedding().backward(),
                                 group->block().backward(), group->head().backward());
    return std::max(parts + Ends(stage, layers) * group->ends().backward(), 0.0);
  }
  const v1::LayerTimes& times = request_.workers[stage].times;
  return OfParts(stage, layers, times.embedding_backward(), times.block_backward(),
                 times.head_backward());
}

std::optional<GroupEstimate> Planner::EstimateOfGroup(uint32_t stage, uint32_t layers) const {
  const v1::GroupTimes* const group = Group(stage);
  if (group == nullptr) return std::nullopt;
  GroupEstimate estimate{.forward_collective = group->forward_collective(),
                         .backward_collective = group->backward_collective(),
                         .sent = FromProto(group->block().sent()) * layers};
  if (chain::IsFirst(stage)) estimate.sent = estimate.sent + FromProto(group->embedding().sent());
  if (IsLast(stage)) estimate.sent = estimate.sent + FromProto(group->head().sent());
  const int ends = Ends(stage, layers);
  const CollectiveBytes of_ends = FromProto(group->ends().sent());
  estimate.sent =
      ends < 0 ? estimate.sent - of_ends : estimate.sent + of_ends * static_cast<uint64_t>(ends);
  if (group->block().has_collective_seconds()) {
    const double parts =
        OfParts(stage, layers, group->embedding().collective_seconds(),
                group->block().collective_seconds(), group->head().collective_seconds());
    estimate.collective_seconds = std::max(parts + ends * group->ends().collective_seconds(), 0.0);
  }
  const v1::LayerTimes& times = request_.workers[stage].times;
  estimate.even_share_seconds =
      OfParts(stage, layers, times.embedding_forward() + times.embedding_backward(),
              times.block_forward() + times.block_backward(),
              times.head_forward() + times.head_backward()) /
      group->tensor();
  return estimate;
}

// Replicas step their parts of it.
double Planner::Optimizer(uint32_t stage, uint32_t layers) const {
  const uint32_t replicas = spec_.replicas.count;
  if (spec_.replay) {
    return absl::ToDoubleSeconds(spec_.replay->optimizer * layers / spec_.model.layers) / replicas;
  }
  const v1::GroupTimes* const group = Group(stage);
  return static_cast<double>(SizeOf(stage, layers).parameters) / replicas *
         (group != nullptr ? group->optimizer_seconds_per_parameter()
                           : request_.workers[stage].times.optimizer_seconds_per_parameter());
}

const Planner::Size& Planner::SizeOf(uint32_t stage, uint32_t layers) const {
  const bool first = chain::IsFirst(stage), last = IsLast(stage);
  const bool on_gpu = request_.workers[stage].on_gpu;
  const auto [size, is_new] = sizes_.try_emplace({layers, first, last, on_gpu});
  if (is_new) {
    const uint32_t vocabulary = request_.data.vocabulary;
    size->second = {.memory = MemoryOf(spec_, vocabulary, layers, first, last, on_gpu),
                    .parameters = StageParameters(spec_.model, vocabulary, layers, first, last)};
  }
  return size->second;
}

uint32_t Planner::LeastDepth(uint32_t stage) const {
  switch (spec_.pipeline.schedule) {
    case ScheduleKind::kGpipe:
      return spec_.train.microbatches;
    case ScheduleKind::kOneFOneB:
      return std::min(spec_.train.microbatches,
                      spec_.pipeline.depth.value_or(chain::StagesFrom(stage, stages_)));
    case ScheduleKind::kLinkAware:
      return std::min(spec_.train.microbatches, spec_.pipeline.depth.value_or(1));
  }
  return 1;
}

Planner::Need Planner::OfDevice(uint32_t stage, uint32_t layers) const {
  return {Memory(stage, layers).At(LeastDepth(stage)), request_.workers[stage].memory_bytes};
}

Planner::Need Planner::OfHost(uint32_t stage, uint32_t layers) const {
  return {Memory(stage, layers).host, request_.workers[stage].host_memory_bytes};
}

bool Planner::Fits(uint32_t stage, uint32_t layers) const {
  return OfDevice(stage, layers).fits() && OfHost(stage, layers).fits();
}

uint32_t Planner::DepthOf(uint32_t stage, uint32_t layers) const {
  const uint32_t least = LeastDepth(stage);
  const uint64_t available = request_.workers[stage].memory_bytes;
  if (spec_.pipeline.schedule != ScheduleKind::kLinkAware || spec_.pipeline.depth) return least;
  if (available == 0) return spec_.train.microbatches;
  const StageMemory& memory = Memory(stage, layers);
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
  LH_RETURN_IF_ERROR(CheckExperts(spec_));
  LH_RETURN_IF_ERROR(CheckDevices(spec_, request_.workers));
  LH_RETURN_IF_ERROR(CheckSlices(spec_, request_.workers));
  if (spec_.group.tensor == 1) return absl::OkStatus();
  for (const CandidateWorker& worker : request_.workers) {
    LH_RETURN_IF_ERROR(CheckTimed(worker, spec_.group));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<uint32_t>> Planner::Split() const {
  if (!request_.layers.empty()) return FixedSplit();
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

StatusOr<std::vector<uint32_t>> Planner::FixedSplit() const {
  LH_CHECK(request_.layers.size() == stages_, "a split of as many stages as workers");
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    if (!Fits(stage, request_.layers[stage])) return DoesNotFit(request_.layers);
  }
  return request_.layers;
}

std::optional<std::vector<uint32_t>> Planner::SplitOfCheckpoint() const {
  if (!request_.resume || request_.resume->cells.size() != stages_) return std::nullopt;
  std::vector<uint32_t> layers;
  uint32_t total = 0;
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const Cell& wrote = request_.resume->cells[stage];
    const uint32_t count = wrote.layers.count;
    if (request_.workers[stage].id != wrote.worker || count == 0 || !Fits(stage, count)) {
      return std::nullopt;
    }
    layers.push_back(count);
    total += count;
  }
  if (total != spec_.model.layers) return std::nullopt;
  return layers;
}

Status Planner::DoesNotFit(const std::vector<uint32_t>& layers) const {
  uint32_t worst = 0;
  Need worst_need;
  bool in_host = false;
  const auto consider = [&](uint32_t stage, const Need& need, bool of_host) {
    if (need.ratio() <= worst_need.ratio()) return;
    worst = stage;
    worst_need = need;
    in_host = of_host;
  };
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    consider(stage, OfDevice(stage, layers[stage]), /*of_host=*/false);
    consider(stage, OfHost(stage, layers[stage]), /*of_host=*/true);
  }
  const std::string what = fmt::format(
      "{} ({} bytes){} and worker {} has {} ({} bytes){}",
      FormatBytes(static_cast<double>(worst_need.needed)), worst_need.needed,
      in_host ? " of its host's memory, for snapshots of its state and for buffers,"
      : spec_.group.tensor > 1
          ? fmt::format(" on the device of each of its {} ranks,", spec_.group.tensor)
          : "",
      request_.workers[worst].name, FormatBytes(static_cast<double>(worst_need.available)),
      worst_need.available, in_host ? " beside its GPU" : "");
  if (in_host) {
    const bool again = spec_.checkpoint.every > 0 || spec_.recovery.every != 0u;
    return absl::FailedPreconditionError(fmt::format(
        "stage {} ({} of {} layers) needs {}, and no other split fits either: use more workers, or "
        "hosts with more memory, or a smaller model{}",
        worst, layers[worst], spec_.model.layers, what,
        again ? "; a run that saves its state at the end alone (checkpoint.every: 0, "
                "recovery.every: 0) holds one snapshot rather than two"
              : ""));
  }
  return absl::FailedPreconditionError(fmt::format(
      "stage {} ({} of {} layers, {} microbatches in flight) needs {}, and no other split fits "
      "either: use more or larger workers, pipeline.recompute, or a smaller train.microbatch_size "
      "or model",
      worst, layers[worst], spec_.model.layers, LeastDepth(worst), what));
}

void Planner::AddCells(const std::vector<uint32_t>& layers, Plan* plan) const {
  uint32_t first_layer = 0;
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const CandidateWorker& worker = request_.workers[stage];
    Cell& cell = plan->assignment.cells.emplace_back();
    cell.id.stage = stage;
    cell.worker = worker.id;
    cell.incarnation = worker.incarnation;
    cell.worker_name = worker.name;
    cell.layers = {first_layer, layers[stage]};
    cell.roles = RolesOf(stage);
    cell.group = {spec_.group.tensor, spec_.group.expert};
    const size_t taken = std::min<size_t>(spec_.group.tensor, worker.devices.size());
    cell.devices.assign(worker.devices.begin(), worker.devices.begin() + static_cast<long>(taken));
    cell.setting.depth = DepthOf(stage, layers[stage]);
    cell.setting.threads = Threads(stage);
    cell.endpoints = worker.endpoints;
    plan->cells.push_back({.forward_seconds = Forward(stage, layers[stage]),
                           .backward_seconds = Backward(stage, layers[stage]),
                           .optimizer_seconds = Optimizer(stage, layers[stage]),
                           .memory_available_bytes = worker.memory_bytes,
                           .device_kind = worker.on_gpu ? "cuda" : "cpu",
                           .group = EstimateOfGroup(stage, layers[stage])});
    first_layer = cell.layers.end();
  }
}

void Planner::AddMemory(const std::vector<uint32_t>& most, Plan* plan) const {
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    Cell& cell = plan->assignment.cells[stage];
    CellEstimate& estimate = plan->cells[stage];
    const StageMemory& memory = Memory(stage, cell.layers.count);
    cell.memory_bytes = memory.At(cell.setting.depth);
    estimate.memory_per_flight_bytes = memory.per_flight;
    if (request_.workers[stage].memory_bytes > 0) estimate.depth_by_memory = most[stage];
  }
}

StatusOr<Plan> Planner::Make(const std::stop_token& stop) {
  LH_RETURN_IF_ERROR(Check());
  Plan plan;
  Assignment& assignment = plan.assignment;
  assignment.run = request_.run;
  assignment.epoch = request_.epoch;
  assignment.run_yaml = ToYaml(spec_);
  assignment.slices = spec_.pipeline.SlicesNow();
  assignment.data = request_.data;
  if (request_.resume) assignment.start_step = request_.resume->step;
  LH_ASSIGN_OR_RETURN(const std::vector<uint32_t> layers, Split());
  AddCells(layers, &plan);
  LH_RETURN_IF_ERROR(AddEdges(request_, &plan));
  LH_RETURN_IF_ERROR(CheckPredictions(request_, assignment));
  LH_RETURN_IF_ERROR(AddMessages(request_, &assignment));
  SetNetwork(NetworkFor(request_, assignment), &plan);
  std::vector<uint32_t> most;
  for (const Cell& cell : assignment.cells) most.push_back(cell.setting.depth);
  LH_RETURN_IF_ERROR(ChooseOrder(spec_, &plan, stop));
  AddMemory(most, &plan);
  LH_RETURN_IF_ERROR(AddPrediction(spec_, &plan, stop));
  plan.prediction.assumed_line_bits_per_second = request_.assumed_line_bits_per_second;
  if (request_.assumed_delay) {
    plan.prediction.assumed_delay_seconds = absl::ToDoubleSeconds(*request_.assumed_delay);
  }
  if (request_.with_codec_table) LH_RETURN_IF_ERROR(AddCodecTable(request_, most, stop, &plan));
  const CopyInterval copies = CopyIntervalOf(spec_, plan);
  assignment.copy_every = copies.steps;
  plan.explanation = Explain(request_, plan);
  if (copies.steps > 0) {
    plan.explanation +=
        fmt::format(" Every stage's state is copied to another worker {}.", copies.reason);
  }
  return plan;
}

}  // namespace

Status CheckDevices(const RunSpec& spec, const std::vector<CandidateWorker>& workers) {
  const uint32_t ranks = spec.group.tensor;
  if (ranks == 1) return absl::OkStatus();  // one that names none has a CPU
  for (const CandidateWorker& worker : workers) {
    const size_t offered = worker.devices.size();
    if (offered >= ranks) continue;
    return absl::FailedPreconditionError(fmt::format(
        "expected workers with {} devices of one kind, one for each rank of a stage "
        "(group.tensor), and worker {} offers {}{}; start it with --device {}, or set group.tensor "
        "to {}",
        ranks, worker.name, offered, worker.on_gpu ? " of its GPUs" : " on its CPU",
        worker.on_gpu ? fmt::format("cuda:0-{}", ranks - 1)
                      : fmt::format("{}", fmt::join(std::vector<std::string>(ranks, "cpu"), ",")),
        std::max<size_t>(offered, 1)));
  }
  return absl::OkStatus();
}

uint32_t ThreadsOfRank(const RunSpec& spec, const CandidateWorker& worker) {
  return longhaul::ThreadsOfRank(spec.pipeline.threads_per_stage, spec.group.tensor, worker.cores);
}

StatusOr<Plan> MakePlan(const PlanRequest& request, const std::stop_token& stop) {
  if (!request.spec.pipeline.slices) return MakePlanOfBestSlices(request, stop);
  if (request.spec.group.is_auto()) return MakePlanOfBestGroup(request, stop);
  if (request.spec.replicas.count > 1) return MakePlanOfReplicas(request, stop);
  return MakePlanOfOneReplica(request, stop);
}

StatusOr<Plan> MakePlanOfOneReplica(const PlanRequest& request, const std::stop_token& stop) {
  return Planner(request).Make(stop);
}

StatusOr<std::vector<uint32_t>> SplitFor(const PlanRequest& request) {
  return Planner(request).SplitOrRefuse();
}

std::optional<uint32_t> StageCount(const RunSpec& spec, uint32_t free_workers) {
  const uint32_t of_each = free_workers / spec.replicas.count;
  const uint32_t wanted = spec.pipeline.stages.value_or(std::min(of_each, spec.model.layers));
  if (wanted == 0 || wanted > of_each) return std::nullopt;
  return wanted;
}

}  // namespace longhaul::coordinator
