#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "planner/audit_cost.h"
#include "planner/auto_keys.h"
#include "planner/auto_search.h"
#include "planner/codec_choice.h"
#include "planner/copy_interval.h"
#include "planner/explain.h"
#include "planner/links.h"
#include "planner/memory.h"
#include "planner/order.h"
#include "planner/place_workers.h"
#include "planner/prediction.h"
#include "planner/replicas.h"
#include "planner/sharing.h"
#include "planner/split.h"
#include "planner/stage_costs.h"
#include "planner/tied_cost.h"
#include "run/model/share.h"
#include "run/plan/chain.h"

namespace longhaul::coordinator {
namespace {

Status CheckTimed(const CandidateWorker& worker, const GroupSpec& wanted) {
  const v1::GroupTimes* const group = TimesOfGroup(worker, wanted);
  const std::string ranks =
      fmt::format("{} ranks{}", wanted.tensor,
                  wanted.expert > 1 ? fmt::format(" with experts in {} parts", wanted.expert) : "");
  if (group == nullptr) {
    return FailedPrecondition(
        "expected worker {} to have timed a stage of {}, got times of other groups or "
        "one device alone: it is of an older version; update it, or set group.tensor "
        "to 1",
        worker.name, ranks);
  }
  if (group->refused().empty()) return absl::OkStatus();
  return FailedPrecondition("{} on worker {}: {}", ranks, worker.name, group->refused());
}

// How ranks divide experts, where a plan tries numbers of ranks of its own.
Status CheckExperts(const RunSpec& spec) {
  const std::vector<uint32_t> parts = model::PartsOfExperts(spec.model, spec.group.tensor);
  if (std::ranges::find(parts, spec.group.expert) != parts.end()) return absl::OkStatus();
  return FailedPrecondition(
      "group.expert: expected a number that divides the {} rank{} of a stage and the {} experts of "
      "a block (model.experts), got {}; choose another number, or auto",
      spec.group.tensor, spec.group.tensor == 1 ? "" : "s",
      spec.model.has_experts() ? spec.model.experts : 0, spec.group.expert);
}

// How ranks divide the tokens of a slice, where a plan tries numbers of its own.
Status CheckTokens(const RunSpec& spec) {
  const uint32_t tokens = spec.model.context / spec.pipeline.SlicesNow();
  if (!spec.group.sequence || tokens % spec.group.tensor == 0) return absl::OkStatus();
  return FailedPrecondition(
      "group.sequence: expected a number of ranks that divides the {} tokens of a slice, got {}; "
      "choose another number of ranks or slices, or leave sequence out",
      tokens, spec.group.tensor);
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request),
        spec_(request.spec),
        stages_(static_cast<uint32_t>(request.workers.size())),
        costs_(request.spec, request.data.vocabulary) {}

  StatusOr<BegunPlan> Begin() const;
  StatusOr<Plan> Finish(BegunPlan begun, const Plan* slower, const std::stop_token& stop) const;
  StatusOr<std::vector<uint32_t>> SplitOrRefuse() const {
    LH_RETURN_IF_ERROR(Check());
    return Split();
  }

 private:
  using Need = StageCosts::Need;

  Roles RolesOf(uint32_t stage) const {
    return {.embedding = chain::IsFirst(stage), .head = chain::IsLast(stage, stages_)};
  }
  StageCosts::Stage As(uint32_t stage, uint32_t layers) const {
    return {request_.workers[stage], RolesOf(stage), layers};
  }
  // The depth that this stage must be able to hold.
  uint32_t LeastDepth(uint32_t stage) const {
    return costs_.LeastDepth(chain::StagesFrom(stage, stages_));
  }
  bool Fits(uint32_t stage, uint32_t layers) const {
    return costs_.Fits(As(stage, layers), LeastDepth(stage));
  }

  Status Check() const;
  StatusOr<std::vector<uint32_t>> Split() const;
  // Where it fits the same workers: then no shard has to move.
  std::optional<std::vector<uint32_t>> SplitOfCheckpoint() const;
  Status DoesNotFit(const std::vector<uint32_t>& layers) const;
  void AddCells(const std::vector<uint32_t>& layers, Plan* plan) const;
  // What a plan needs once codecs (those of `settled`) and depths are chosen. Each cell could hold
  // `most` microbatches.
  void AddMemory(const RunSpec& settled, const std::vector<uint32_t>& most, Plan* plan) const;

  const PlanRequest& request_;
  const RunSpec& spec_;
  const uint32_t stages_;
  const StageCosts costs_;
};

Status Planner::Check() const {
  if (stages_ == 0) return absl::InvalidArgumentError("a plan needs at least one worker");
  if (stages_ > spec_.model.layers) {
    return InvalidArgument(
        "{} stages are more than the model's {} layers; every stage needs one: ask for "
        "fewer pipeline.stages",
        stages_, spec_.model.layers);
  }
  if (spec_.train.microbatches == 0) {
    return absl::InvalidArgumentError("train.microbatches is 0; a step needs at least one");
  }
  LH_RETURN_IF_ERROR(CheckExperts(spec_));
  LH_RETURN_IF_ERROR(CheckTokens(spec_));
  LH_RETURN_IF_ERROR(CheckDevices(spec_, request_.workers));
  if (spec_.group.tensor == 1) return absl::OkStatus();
  for (const CandidateWorker& worker : request_.workers) {
    LH_RETURN_IF_ERROR(CheckTimed(worker, spec_.group));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<uint32_t>> Planner::Split() const {
  if (auto split = SplitOfCheckpoint()) return *std::move(split);
  if (request_.layers) return *request_.layers;
  const auto time = [this](uint32_t stage, uint32_t layers) {
    const StageCosts::Stage as = As(stage, layers);
    return spec_.train.microbatches * (costs_.Forward(as) + costs_.Backward(as)) +
           costs_.Optimizer(as);
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
    const StageCosts::Stage as = As(stage, layers[stage]);
    consider(stage, costs_.OfDevice(as, LeastDepth(stage)), /*of_host=*/false);
    consider(stage, costs_.OfHost(as), /*of_host=*/true);
  }
  const std::string what =
      fmt::format("{} ({} bytes){} and worker {} has {} ({} bytes){}",
                  FormatBytes(worst_need.needed), worst_need.needed,
                  in_host ? " of its host's memory, for snapshots of its state and for buffers,"
                  : spec_.group.tensor > 1
                      ? fmt::format(" on the device of each of its {} ranks,", spec_.group.tensor)
                      : "",
                  request_.workers[worst].name, FormatBytes(worst_need.available),
                  worst_need.available, in_host ? " beside its GPU" : "");
  if (in_host) {
    const bool again = spec_.checkpoint.every > 0 || spec_.recovery.every != 0u;
    return FailedPrecondition(
        "stage {} ({} of {} layers) needs {}, and no other split fits either: use more workers, or "
        "hosts with more memory, or a smaller model{}",
        worst, layers[worst], spec_.model.layers, what,
        again ? "; a run that saves its state at the end alone (checkpoint.every: 0, "
                "recovery.every: 0) holds one snapshot rather than two"
              : "");
  }
  return FailedPrecondition(
      "stage {} ({} of {} layers, {} microbatches in flight) needs {}, and no other split fits "
      "either: use more or larger workers, pipeline.recompute, or a smaller train.microbatch_size "
      "or model",
      worst, layers[worst], spec_.model.layers, LeastDepth(worst), what);
}

void Planner::AddCells(const std::vector<uint32_t>& layers, Plan* plan) const {
  uint32_t first_layer = 0;
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const CandidateWorker& worker = request_.workers[stage];
    const StageCosts::Stage as = As(stage, layers[stage]);
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
    cell.setting.depth = costs_.DepthOf(as, LeastDepth(stage));
    // Ranks on a CPU share its cores.
    cell.setting.threads = ThreadsOfRank(spec_, worker);
    cell.endpoints = worker.endpoints;
    plan->cells.push_back({.forward_seconds = costs_.Forward(as),
                           .backward_seconds = costs_.Backward(as),
                           .optimizer_seconds = costs_.Optimizer(as),
                           .memory_available_bytes = worker.memory_bytes,
                           .device_kind = worker.on_gpu ? "cuda" : "cpu",
                           .group = costs_.EstimateOfGroup(as)});
    first_layer = cell.layers.end();
  }
}

void Planner::AddMemory(const RunSpec& settled, const std::vector<uint32_t>& most,
                        Plan* plan) const {
  const StageCosts costs(settled, request_.data.vocabulary);
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    Cell& cell = plan->assignment.cells[stage];
    CellEstimate& estimate = plan->cells[stage];
    const StageMemory& memory = costs.Memory(As(stage, cell.layers.count));
    cell.memory_bytes = memory.At(cell.setting.depth);
    estimate.memory_per_flight_bytes = memory.per_flight;
    if (request_.workers[stage].memory_bytes > 0) estimate.depth_by_memory = most[stage];
  }
}

StatusOr<BegunPlan> Planner::Begin() const {
  LH_RETURN_IF_ERROR(Check());
  BegunPlan begun;
  Plan& plan = begun.plan;
  Assignment& assignment = plan.assignment;
  assignment.run = request_.run;
  assignment.epoch = request_.epoch;
  assignment.slices = spec_.pipeline.SlicesNow();
  assignment.data = request_.data;
  if (request_.resume) assignment.start_step = request_.resume->step;
  LH_ASSIGN_OR_RETURN(const std::vector<uint32_t> layers, Split());
  AddCells(layers, &plan);
  assignment.sealed = SealsLinks(spec_, assignment.cells);
  LH_RETURN_IF_ERROR(AddEdges(request_, &plan));
  SealIfRelayed(&assignment);
  LH_RETURN_IF_ERROR(CheckPredictions(request_, assignment));
  LH_RETURN_IF_ERROR(AddMessages(request_, &assignment));
  SetNetwork(NetworkFor(request_, assignment), &plan);
  for (const Cell& cell : assignment.cells) begun.most_depths.push_back(cell.setting.depth);
  return begun;
}

StatusOr<Plan> Planner::Finish(BegunPlan begun, const Plan* slower,
                               const std::stop_token& stop) const {
  Plan& plan = begun.plan;
  const std::vector<uint32_t>& most = begun.most_depths;
  LH_ASSIGN_OR_RETURN(const std::string codecs, ChooseCodecs(request_, stop, &plan));
  AddCarriedTokens(request_, &plan.assignment);
  RunSpec settled = spec_;
  if (spec_.links.HasAutoCodecs()) settled.links.chosen = CodecsOf(plan.assignment);
  const bool is_alone = slower == nullptr || request_.effort == Effort::kTrial;
  LH_RETURN_IF_ERROR(is_alone ? ChooseOrder(spec_, &plan, stop, request_.effort, request_.limit)
                              : ChooseOrderLike(spec_, *slower, &plan, stop, request_.limit));
  AddMemory(settled, most, &plan);
  LH_RETURN_IF_ERROR(AddPrediction(spec_, &plan, stop));
  plan.prediction.assumed_line_bits_per_second = request_.assumed_line_bits_per_second;
  if (request_.assumed_delay) {
    plan.prediction.assumed_delay_seconds = absl::ToDoubleSeconds(*request_.assumed_delay);
  }
  if (request_.with_codec_table) LH_RETURN_IF_ERROR(AddCodecTable(request_, most, stop, &plan));
  const CopyInterval copies = CopyIntervalOf(settled, plan);
  plan.assignment.copy_every = copies.steps;
  plan.explanation = Explain(request_, plan) + codecs;
  if (copies.steps > 0) {
    plan.explanation +=
        fmt::format(" Every stage's state is copied to another worker {}.", copies.reason);
  }
  plan.explanation += AuditText(settled, plan);
  if (const std::string risk = LostDiskWarning(spec_, copies.steps);
      request_.on_other_machines && !risk.empty()) {
    plan.explanation += fmt::format(" Warning: {}.", risk);
  }
  return std::move(plan);
}

}  // namespace

Status CheckDevices(const RunSpec& spec, const std::vector<CandidateWorker>& workers) {
  const uint32_t ranks = spec.group.tensor;
  if (ranks == 1) return absl::OkStatus();  // one that names none has a CPU
  for (const CandidateWorker& worker : workers) {
    const size_t offered = worker.devices.size();
    if (offered >= ranks) continue;
    return FailedPrecondition(
        "expected workers with {} devices of one kind, one for each rank of a stage "
        "(group.tensor), and worker {} offers {}{}; start it with --device {}, or set group.tensor "
        "to {}",
        ranks, worker.name, offered, worker.on_gpu ? " of its GPUs" : " on its CPU",
        worker.on_gpu ? fmt::format("cuda:0-{}", ranks - 1)
                      : fmt::format("{}", fmt::join(std::vector<std::string>(ranks, "cpu"), ",")),
        std::max<size_t>(offered, 1));
  }
  return absl::OkStatus();
}

uint32_t ThreadsOfRank(const RunSpec& spec, const CandidateWorker& worker) {
  return longhaul::ThreadsOfRank(spec.pipeline.threads_per_stage, spec.group.tensor, worker.cores);
}

namespace {

// As MakePlan, with links.predicts as it is.
StatusOr<Plan> MakePlanWith(const PlanRequest& request, const std::stop_token& stop);

// The plan of placed candidates. Where some chosen workers share a GPU, the plan of candidates that
// need not is made, too, and the faster one is taken.
StatusOr<Plan> MakePlanOfPlaced(const PlanRequest& request, const std::stop_token& stop) {
  LH_ASSIGN_OR_RETURN(const PlanRequest placed, PlaceWorkers(request, stop));
  StatusOr<Plan> plan = MakePlanInSearch(placed, stop);
  if (absl::IsCancelled(plan.status()) || !AnyShareDevices(placed.workers)) return plan;
  if (plan.ok() && request.limit.IsOver()) return plan;
  const std::optional<PlanRequest> spread = WithFewSharers(request);
  if (!spread) return plan;
  LH_ASSIGN_OR_RETURN(PlanRequest apart, PlaceWorkers(*spread, stop));
  // Measured links are enough for the one, and not for the other.
  if (plan.ok() && placed.only_measured != apart.only_measured) return plan;
  if (apart.placement) {
    apart.placement->left_out =
        static_cast<uint32_t>(request.workers.size() - spread->workers.size());
  }
  StatusOr<Plan> other = MakePlanInSearch(apart, stop);
  if (absl::IsCancelled(other.status())) return other;
  const bool is_better =
      other.ok() && (!plan.ok() || other->prediction.step_seconds < plan->prediction.step_seconds);
  return is_better ? std::move(other) : std::move(plan);
}

}  // namespace

StatusOr<Plan> MakePlan(const PlanRequest& request, const std::stop_token& stop) {
  StatusOr<Plan> plan = MakePlanInSearch(request, stop);
  if (plan.ok()) LH_RETURN_IF_ERROR(CheckTiedCost(request, *plan));
  if (plan.ok() && request.limit.HasEndedSearches()) {
    plan->prediction.cut_short = request.limit.Words();
    plan->explanation += fmt::format(" More was not tried: {}.", plan->prediction.cut_short);
  }
  return plan;
}

StatusOr<Plan> MakePlanInSearch(const PlanRequest& request, const std::stop_token& stop) {
  StatusOr<Plan> plan = MakePlanWith(request, stop);
  const bool may_do_without = absl::IsFailedPrecondition(plan.status()) &&
                              request.spec.links.HasAutoCodecs() && request.spec.links.predicts &&
                              TableBytes(request.spec, request.data.vocabulary) > 0;
  if (!may_do_without) return plan;
  PlanRequest without = request;
  without.spec.links.predicts = false;
  StatusOr<Plan> other = MakePlanWith(without, stop);
  if (!other.ok()) return absl::IsCancelled(other.status()) ? std::move(other) : std::move(plan);
  other->explanation += fmt::format(
      " No codec predicts activations by their tokens, because memory has no room for its tables, "
      "{} at each end of a link.",
      FormatBytes(TableBytes(request.spec, request.data.vocabulary)));
  return other;
}

namespace {

StatusOr<Plan> MakePlanWith(const PlanRequest& request, const std::stop_token& stop) {
  LH_ASSIGN_OR_RETURN(const std::optional<AutoSearch> open, SearchForOpenKey(request));
  if (open) return PlanBestValue(*open, stop);
  if (request.candidates_for) return MakePlanOfPlaced(request, stop);
  if (request.spec.replicas.count > 1) return MakePlanOfReplicas(request, stop);
  LH_ASSIGN_OR_RETURN(BegunPlan begun, BeginPlan(request));
  LH_RETURN_IF_ERROR(
      SlowDownSharedDevices(request.spec, request.workers, std::span(&begun.plan, 1), stop));
  LH_ASSIGN_OR_RETURN(Plan plan, FinishPlan(request, std::move(begun), nullptr, stop));
  plan.assignment.run_yaml = RunYamlOf(request.spec, plan.assignment);
  return plan;
}

}  // namespace

StatusOr<BegunPlan> BeginPlan(const PlanRequest& request) {
  return Planner(request).Begin();
}

StatusOr<Plan> FinishPlan(const PlanRequest& request, BegunPlan begun, const Plan* slower,
                          const std::stop_token& stop) {
  return Planner(request).Finish(std::move(begun), slower, stop);
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
