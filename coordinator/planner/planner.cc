#include "coordinator/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/schedule/simulator.h"
#include "base/token_file.h"
#include "base/units.h"
#include "codec/codec.h"
#include "codec/messages/footprint.h"
#include "codec/registry.h"
#include "coordinator/planner/explain.h"
#include "coordinator/planner/memory.h"
#include "coordinator/planner/pipeline_cost.h"
#include "coordinator/planner/split.h"

namespace longhaul::coordinator {
namespace {

// The simulator shares interfaces fairly; TCP does so only in the long run, which costs a few per
// cent of a step. Activations first until sharing promises more than that.
constexpr double kWorthSharing = 1.05;

// `who` would keep so much for `codec`.
Status CheckCacheLimit(const RunSpec& spec, const codec::MessageFootprint& footprint,
                       std::string_view who, std::string_view codec) {
  if (footprint.total() <= spec.links.cache_limit_bytes) return absl::OkStatus();
  const auto bytes = [](uint64_t count) {
    return fmt::format("{} ({} bytes)", FormatBytes(static_cast<double>(count)), count);
  };
  return absl::FailedPreconditionError(fmt::format(
      "{} needs {} of disk for the message buffers of {}: {} for every sample of the text and up "
      "to {} for the undo journal; links.cache_limit is {}: raise it, checkpoint more often, use "
      "less text, or choose a codec without buffers",
      who, bytes(footprint.total()), codec, bytes(footprint.records), bytes(footprint.journal),
      bytes(spec.links.cache_limit_bytes)));
}

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
  uint64_t Memory(uint32_t stage, uint32_t layers, uint32_t depth) const;
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
  Status AddLinks(v1::Plan* plan) const;
  // What the codecs of the plan's links remember, to its stages; and whether that is allowed.
  Status AddMessages(v1::Plan* plan) const;
  uint64_t Windows() const;
  uint64_t UsualBytes(const codec::Codec& codec, const codec::Shape& shape) const;
  LinkMeasurement Measured(uint32_t from, uint32_t to) const;
  Network Rates() const;
  StatusOr<schedule::Simulation> Predict(const v1::Plan& plan, bool unlimited_depth) const;
  StatusOr<bool> SendsActivationsFirst(const v1::Plan& plan) const;

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

uint64_t Planner::Memory(uint32_t stage, uint32_t layers, uint32_t depth) const {
  return StageMemoryBytes(spec_, request_.data.vocabulary(), layers, stage == 0, IsLast(stage),
                          depth);
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
  return available == 0 || Memory(stage, layers, LeastDepth(stage)) <= available;
}

uint32_t Planner::DepthOf(uint32_t stage, uint32_t layers) const {
  const uint32_t least = LeastDepth(stage);
  const uint64_t available = request_.workers[stage].memory_bytes;
  if (spec_.pipeline.schedule != ScheduleKind::kLinkAware || spec_.pipeline.depth) return least;
  if (available == 0) return spec_.train.microbatches;
  const StageMemory memory =
      MemoryOf(spec_, request_.data.vocabulary(), layers, stage == 0, IsLast(stage));
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
    const double ratio = static_cast<double>(Memory(stage, layers[stage], LeastDepth(stage))) /
                         static_cast<double>(available);
    if (ratio > worst_ratio) {
      worst = stage;
      worst_ratio = ratio;
    }
  }
  const uint64_t needed = Memory(worst, layers[worst], LeastDepth(worst));
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
    one.set_memory_bytes(Memory(stage, layers[stage], one.depth()));
    one.set_memory_available_bytes(worker.memory_bytes);
    one.mutable_endpoints()->Add(worker.endpoints.begin(), worker.endpoints.end());
    one.set_forward_seconds(Forward(stage, layers[stage]));
    one.set_backward_seconds(Backward(stage, layers[stage]));
    one.set_optimizer_seconds(Optimizer(stage, layers[stage]));
    first_layer += layers[stage];
  }
}

const LinkException* ExceptionOf(const RunSpec& spec, const std::string& worker) {
  for (const auto& [name, exception] : spec.links.by_worker) {
    if (name == worker) return &exception;
  }
  return nullptr;
}

// The codecs of what `worker` sends.
const CodecPair& CodecsOf(const RunSpec& spec, const std::string& worker) {
  const LinkException* exception = ExceptionOf(spec, worker);
  return exception == nullptr ? spec.links.codecs : exception->codecs;
}

const v1::DataEndpoint* EndpointOf(const CandidateWorker& worker, TransportKind transport) {
  for (const v1::DataEndpoint& endpoint : worker.endpoints) {
    if (endpoint.transport() == ToString(transport)) return &endpoint;
  }
  return nullptr;
}

uint64_t Planner::Windows() const {
  return WindowsOf(request_.data.tokens() - request_.data.validation_tokens(), spec_.model.context);
}

// The mean over the run: a codec with state sends a sample whole when it comes for the first time.
uint64_t Planner::UsualBytes(const codec::Codec& codec, const codec::Shape& shape) const {
  const auto most = static_cast<double>(codec.MaxEncodedBytes(shape));
  const auto least = static_cast<double>(codec.MinEncodedBytes(shape));
  return static_cast<uint64_t>(
      std::lround(least + (most - least) * codec::ShareOfFirstVisits(spec_, Windows())));
}

Status Planner::AddMessages(v1::Plan* plan) const {
  const codec::Shape shape{spec_.train.microbatch_size, spec_.model.context, spec_.model.hidden};
  std::vector<codec::MessageFootprint> footprints(stages_);
  std::vector<std::string> codecs(stages_);
  for (const v1::LinkPlan& link : plan->links()) {
    for (const std::string& text : {link.forward_codec(), link.backward_codec()}) {
      LH_ASSIGN_OR_RETURN(const auto codec, codec::ParseCodec(text));
      const size_t record_bytes = codec->MessageBytes(shape);
      if (record_bytes == 0) continue;
      if (spec_.replay && !spec_.replay->real_codecs) {
        return absl::FailedPreconditionError(fmt::format(
            "{} cannot be replayed as measured, because its blobs depend on what was sent before; "
            "set replay.codecs to real, or choose another codec",
            codec->name()));
      }
      const codec::MessageFootprint one = codec::FootprintOf(spec_, Windows(), record_bytes);
      for (const uint32_t stage : {link.boundary(), link.boundary() + 1}) {
        footprints[stage] += one;
        codecs[stage] = codec->name();
      }
    }
  }
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const codec::MessageFootprint& footprint = footprints[stage];
    v1::StagePlan& one = *plan->mutable_stages(static_cast<int>(stage));
    one.set_message_record_bytes(footprint.records);
    one.set_message_journal_bytes(footprint.journal);
    LH_RETURN_IF_ERROR(CheckCacheLimit(
        spec_, footprint, fmt::format("stage {} on worker {}", stage, request_.workers[stage].name),
        codecs[stage]));
  }
  return absl::OkStatus();
}

Status Planner::AddLinks(v1::Plan* plan) const {
  const codec::Shape shape{spec_.train.microbatch_size, spec_.model.context, spec_.model.hidden};
  for (uint32_t boundary = 0; boundary + 1 < stages_; ++boundary) {
    const CandidateWorker& upper = request_.workers[boundary];
    const CandidateWorker& lower = request_.workers[boundary + 1];
    LH_ASSIGN_OR_RETURN(const TransportKind transport, LinkTransport(spec_, upper, lower));
    const bool upper_reachable = EndpointOf(upper, transport)->addresses_size() > 0;
    if (!upper_reachable && EndpointOf(lower, transport)->addresses().empty()) {
      return absl::FailedPreconditionError(
          fmt::format("workers {} and {} are neighbours and neither has an address at which the "
                      "other could reach it over {}; start one of them with --advertise host:port",
                      upper.name, lower.name, ToString(transport)));
    }
    LH_ASSIGN_OR_RETURN(const auto forward, codec::ParseCodec(CodecsOf(spec_, upper.name).forward));
    LH_ASSIGN_OR_RETURN(const auto backward,
                        codec::ParseCodec(CodecsOf(spec_, lower.name).backward));
    v1::LinkPlan& link = *plan->add_links();
    link.set_boundary(boundary);
    link.set_transport(std::string(ToString(transport)));
    link.set_forward_codec(forward->name());
    link.set_backward_codec(backward->name());
    link.set_downstream_dials(upper_reachable);
    link.set_forward_bytes(UsualBytes(*forward, shape));
    link.set_backward_bytes(UsualBytes(*backward, shape));
    link.set_forward_encode_seconds(upper.times.forward_encode());
    link.set_forward_decode_seconds(lower.times.forward_decode());
    link.set_backward_encode_seconds(lower.times.backward_encode());
    link.set_backward_decode_seconds(upper.times.backward_decode());
  }
  return absl::OkStatus();
}

LinkMeasurement Planner::Measured(uint32_t from, uint32_t to) const {
  const auto& measured = request_.workers[from].to;
  const auto it = measured.find(request_.workers[to].id);
  return it == measured.end() ? LinkMeasurement{} : it->second;
}

Network Planner::Rates() const {
  const auto bytes_per_second = [](double bits_per_second) {
    return bits_per_second > 0 ? bits_per_second / 8 : schedule::kUnlimited;
  };
  Network network = UniformNetwork(stages_, schedule::kUnlimited);
  // Links of one interface share it, whatever each could do alone.
  std::vector<double> egress(stages_), ingress(stages_);
  for (uint32_t b = 0; b + 1 < stages_; ++b) {
    const LinkMeasurement down = Measured(b, b + 1), up = Measured(b + 1, b);
    network.links[b] = {.forward_bytes_per_second = bytes_per_second(down.bits_per_second),
                        .backward_bytes_per_second = bytes_per_second(up.bits_per_second),
                        .forward_latency = down.latency,
                        .backward_latency = up.latency};
    egress[b] = std::max(egress[b], down.bits_per_second);
    ingress[b] = std::max(ingress[b], up.bits_per_second);
    egress[b + 1] = up.bits_per_second;
    ingress[b + 1] = down.bits_per_second;
  }
  for (uint32_t s = 0; s < stages_; ++s) {
    const CandidateWorker& worker = request_.workers[s];
    if (worker.egress_bits_per_second > 0) egress[s] = worker.egress_bits_per_second;
    if (worker.ingress_bits_per_second > 0) ingress[s] = worker.ingress_bits_per_second;
    network.interfaces[s] = {bytes_per_second(egress[s]), bytes_per_second(ingress[s])};
  }
  if (request_.assumed_line_bits_per_second) {
    const double goodput = GoodputBytesPerSecond(*request_.assumed_line_bits_per_second);
    network.interfaces.assign(stages_, {goodput, goodput});
    for (LinkRates& link : network.links) {
      link.forward_bytes_per_second = link.backward_bytes_per_second = schedule::kUnlimited;
    }
  }
  if (request_.assumed_delay) {
    for (LinkRates& link : network.links) {
      link.forward_latency = link.backward_latency = *request_.assumed_delay;
    }
  }
  return network;
}

StatusOr<schedule::Simulation> Planner::Predict(const v1::Plan& plan, bool unlimited_depth) const {
  schedule::PipelineCost cost = PipelineCostOf(plan, spec_, NetworkOf(plan));
  if (unlimited_depth) {
    for (schedule::StageCost& stage : cost.stages) stage.depth = spec_.train.microbatches;
  }
  return schedule::Simulate(cost);
}

// Where rates are not known, interfaces count as alike, and then it is the better order.
StatusOr<bool> Planner::SendsActivationsFirst(const v1::Plan& plan) const {
  if (spec_.pipeline.send_order == SendOrder::kAsReady) return false;
  const auto holds_all = [this](const v1::StagePlan& stage) {
    return stage.depth() >= spec_.train.microbatches;
  };
  const bool possible = spec_.pipeline.schedule != ScheduleKind::kOneFOneB &&
                        std::all_of(plan.stages().begin(), plan.stages().end(), holds_all);
  if (spec_.pipeline.send_order == SendOrder::kActivationsFirst) {
    if (possible) return true;
    return absl::FailedPreconditionError(fmt::format(
        "pipeline.send_order: activations-first needs all {} microbatches in flight in every "
        "stage, and a worker's memory does not hold them; take send_order: auto, fewer "
        "microbatches or pipeline.recompute",
        spec_.train.microbatches));
  }
  if (!possible) return false;
  v1::Plan other = plan;
  other.set_activations_first(true);
  LH_ASSIGN_OR_RETURN(const schedule::Simulation as_ready, Predict(plan, false));
  LH_ASSIGN_OR_RETURN(const schedule::Simulation first, Predict(other, false));
  return first.step <= as_ready.step * kWorthSharing;
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
  LH_RETURN_IF_ERROR(AddLinks(&plan));
  LH_RETURN_IF_ERROR(AddMessages(&plan));
  SetNetwork(Rates(), &plan);
  LH_ASSIGN_OR_RETURN(const bool activations_first, SendsActivationsFirst(plan));
  plan.set_activations_first(activations_first);
  LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, Predict(plan, false));
  LH_ASSIGN_OR_RETURN(const schedule::Simulation unlimited, Predict(plan, true));
  v1::Prediction& prediction = *plan.mutable_prediction();
  prediction.set_step_seconds(absl::ToDoubleSeconds(simulation.step));
  prediction.set_lower_bound_seconds(absl::ToDoubleSeconds(simulation.lower_bound));
  prediction.set_bottleneck(simulation.bottleneck);
  plan.set_explanation(Explain(request_, plan, absl::ToDoubleSeconds(unlimited.step)));
  return plan;
}

}  // namespace

StatusOr<v1::Plan> MakePlan(const PlanRequest& request) {
  return Planner(request).Make();
}

StatusOr<TransportKind> LinkTransport(const RunSpec& spec, const CandidateWorker& upper,
                                      const CandidateWorker& lower) {
  const auto asked = [&](const CandidateWorker& worker) {
    const LinkException* exception = ExceptionOf(spec, worker.name);
    return exception == nullptr ? std::nullopt : exception->transport;
  };
  const std::optional<TransportKind> by_upper = asked(upper), by_lower = asked(lower);
  if (by_upper && by_lower && *by_upper != *by_lower) {
    return absl::FailedPreconditionError(fmt::format(
        "workers {} and {} are neighbours, and links.workers asks for {} at the one and for {} at "
        "the other; a link has one transport",
        upper.name, lower.name, ToString(*by_upper), ToString(*by_lower)));
  }
  const TransportKind transport = by_upper ? *by_upper : by_lower.value_or(spec.transport);
  for (const CandidateWorker* worker : {&upper, &lower}) {
    if (EndpointOf(*worker, transport) != nullptr) continue;
    std::string offered;
    for (const v1::DataEndpoint& endpoint : worker->endpoints) {
      offered += (offered.empty() ? "" : " and ") + endpoint.transport();
    }
    return absl::FailedPreconditionError(fmt::format(
        "the link between {} and {} is to go over {}, and worker {} has {}; start it with "
        "--transport {}, or change transport in the run file",
        upper.name, lower.name, ToString(transport), worker->name,
        offered.empty() ? "no data transport" : offered + " only", ToString(transport)));
  }
  return transport;
}

Status CheckMessageCache(const RunSpec& spec, uint64_t text_bytes) {
  const uint32_t stages = spec.pipeline.stages.value_or(2);
  if (stages < 2 || !spec.links.by_worker.empty() || spec.data.tokenizer != "bytes") {
    return absl::OkStatus();
  }
  // The tokenizer's arithmetic: the end of the text, rounded down.
  const uint64_t training_tokens =
      text_bytes - static_cast<uint64_t>(static_cast<double>(text_bytes) * spec.validation.share);
  const codec::Shape shape{spec.train.microbatch_size, spec.model.context, spec.model.hidden};
  const uint64_t windows = WindowsOf(training_tokens, spec.model.context);
  codec::MessageFootprint footprint;
  std::string name;
  for (const std::string& text : {spec.links.codecs.forward, spec.links.codecs.backward}) {
    LH_ASSIGN_OR_RETURN(const auto codec, codec::ParseCodec(text));
    const size_t record_bytes = codec->MessageBytes(shape);
    if (record_bytes == 0) continue;
    name = codec->name();
    // A stage in the middle has two boundaries.
    for (uint32_t boundary = 0; boundary < std::min(stages - 1, 2u); ++boundary) {
      footprint += codec::FootprintOf(spec, windows, record_bytes);
    }
  }
  return CheckCacheLimit(spec, footprint, stages > 2 ? "a stage in the middle" : "a stage", name);
}

std::optional<uint32_t> StageCount(const RunSpec& spec, uint32_t free_workers) {
  const uint32_t wanted = spec.pipeline.stages.value_or(std::min(free_workers, spec.model.layers));
  if (wanted == 0 || wanted > free_workers) return std::nullopt;
  return wanted;
}

}  // namespace longhaul::coordinator
