#include "coordinator/planner/prediction.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/registry.h"
#include "coordinator/planner/links.h"
#include "coordinator/planner/order.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {
namespace {

LinkMeasurement Measured(const CandidateWorker& from, const CandidateWorker& to) {
  const auto it = from.to.find(to.id);
  return it == from.to.end() ? LinkMeasurement{} : it->second;
}

// What the run file's topology puts between two workers; null: nothing.
const TopologyLink* EmulatedBetween(const RunSpec& spec, const std::string& a,
                                    const std::string& b) {
  if (!spec.topology) return nullptr;
  const auto region_of = [&](const std::string& worker) -> std::string_view {
    for (const TopologyRegion& region : spec.topology->regions) {
      const auto& names = region.workers;
      if (std::find(names.begin(), names.end(), worker) != names.end()) return region.name;
    }
    return {};
  };
  const std::string_view one = region_of(a), other = region_of(b);
  if (one.empty() || other.empty()) return nullptr;
  for (const TopologyLink& link : spec.topology->links) {
    if ((link.one == one && link.other == other) || (link.one == other && link.other == one)) {
      return &link;
    }
  }
  return nullptr;
}

NetworkRates MeasuredNetwork(const PlanRequest& request) {
  const std::vector<CandidateWorker>& workers = request.workers;
  const auto stages = static_cast<uint32_t>(workers.size());
  NetworkRates network = UniformNetwork(stages, schedule::kUnlimited);
  std::vector<double> egress(stages), ingress(stages);
  for (uint32_t b = 0; b + 1 < stages; ++b) {
    const LinkMeasurement down = Measured(workers[b], workers[b + 1]);
    const LinkMeasurement up = Measured(workers[b + 1], workers[b]);
    network.links[b] = {.forward_bytes_per_second = BytesPerSecond(down.bits_per_second),
                        .backward_bytes_per_second = BytesPerSecond(up.bits_per_second),
                        .forward_latency = down.latency,
                        .backward_latency = up.latency};
    egress[b] = std::max(egress[b], down.bits_per_second);
    ingress[b] = std::max(ingress[b], up.bits_per_second);
    egress[b + 1] = up.bits_per_second;
    ingress[b + 1] = down.bits_per_second;
    // What was measured has the topology in it.
    const TopologyLink* const emulated =
        EmulatedBetween(request.spec, workers[b].name, workers[b + 1].name);
    if (emulated == nullptr) continue;
    LinkRates& link = network.links[b];
    const double goodput = GoodputBytesPerSecond(emulated->bits_per_second);
    if (down.bits_per_second == 0) {
      link.forward_bytes_per_second = goodput;
      link.forward_latency = emulated->quality.delay;
    }
    if (up.bits_per_second == 0) {
      link.backward_bytes_per_second = goodput;
      link.backward_latency = emulated->quality.delay;
    }
  }
  for (uint32_t s = 0; s < stages; ++s) {
    const CandidateWorker& worker = workers[s];
    if (worker.egress_bits_per_second > 0) egress[s] = worker.egress_bits_per_second;
    if (worker.ingress_bits_per_second > 0) ingress[s] = worker.ingress_bits_per_second;
    network.interfaces[s] = {BytesPerSecond(egress[s]), BytesPerSecond(ingress[s])};
  }
  return network;
}

double Seconds(absl::Duration duration) {
  return absl::ToDoubleSeconds(duration);
}

struct NamedCodecs {
  std::string_view name;
  CodecPair codecs;
};

// The pairs that the benchmarks have.
std::array<NamedCodecs, 5> CommonCodecs() {
  return {{{"none", {"none", "none"}},
           {"bf16", {"bf16", "bf16"}},
           {"paper", {"tah", "fixed:bits=6"}},
           {"default", {}},
           {"gauss", {"gauss", "fixed:bits=4,rounding=stochastic"}}}};
}

std::string Canonical(const std::string& text) {
  const auto codec = codec::ParseCodec(text);
  return codec.ok() ? (*codec)->name() : text;
}

// Of `codec` in one place of a link: what was measured for the run's own codecs, or what a replay's
// run file says. False: nothing is known.
bool SetTimes(const RunSpec& spec, const std::string& codec, const std::string& measured_codec,
              const v1::LinkPlan& measured, Direction direction, v1::LinkPlan* link) {
  const bool forward = direction == Direction::kForward;
  const ReplaySpec::CodecTimes* const replayed =
      spec.replay ? spec.replay->TimesOf(codec) : nullptr;
  double encode = 0, decode = 0;
  const bool same = codec == measured_codec;
  if (same) {
    encode = forward ? measured.forward_encode_seconds() : measured.backward_encode_seconds();
    decode = forward ? measured.forward_decode_seconds() : measured.backward_decode_seconds();
  } else if (replayed != nullptr) {
    encode = Seconds(replayed->encode);
    decode = Seconds(replayed->decode);
  }
  if (forward) {
    link->set_forward_encode_seconds(encode);
    link->set_forward_decode_seconds(decode);
  } else {
    link->set_backward_encode_seconds(encode);
    link->set_backward_decode_seconds(decode);
  }
  return same || replayed != nullptr;
}

// The plan with these codecs in all links. False in `known`: some codec's times are not known and
// count as none.
StatusOr<v1::Plan> WithCodecs(const PlanRequest& request, const CodecPair& codecs,
                              const v1::Plan& plan, bool* known) {
  PlanRequest other = request;
  other.spec.links.codecs = codecs;
  for (auto& [worker, exception] : other.spec.links.by_worker) exception.codecs = codecs;
  v1::Plan changed = plan;
  changed.clear_links();
  LH_RETURN_IF_ERROR(AddLinks(other, &changed));
  SetNetwork(NetworkOf(plan), &changed);
  *known = true;
  for (int b = 0; b < changed.links_size(); ++b) {
    v1::LinkPlan* const link = changed.mutable_links(b);
    const v1::LinkPlan& measured = plan.links(b);
    *known &= SetTimes(request.spec, link->forward_codec(), measured.forward_codec(), measured,
                       Direction::kForward, link);
    *known &= SetTimes(request.spec, link->backward_codec(), measured.backward_codec(), measured,
                       Direction::kBackward, link);
  }
  return changed;
}

v1::CodecPrediction Summary(const RunSpec& spec, std::string_view name, const v1::Plan& plan,
                            bool known) {
  v1::CodecPrediction row;
  row.set_name(std::string(name));
  row.set_forward_codec(plan.links(0).forward_codec());
  row.set_backward_codec(plan.links(0).backward_codec());
  for (const v1::LinkPlan& link : plan.links()) {
    row.set_forward_bytes(std::max(row.forward_bytes(), link.forward_bytes()));
    row.set_backward_bytes(std::max(row.backward_bytes(), link.backward_bytes()));
  }
  const v1::Prediction& prediction = plan.prediction();
  row.set_step_seconds(prediction.step_seconds());
  if (prediction.step_seconds() > 0) {
    row.set_tokens_per_second(static_cast<double>(spec.TokensPerStep()) /
                              prediction.step_seconds());
  }
  row.set_lower_bound_seconds(prediction.lower_bound_seconds());
  row.set_bottleneck(prediction.bottleneck());
  row.set_codec_times_known(known);
  return row;
}

}  // namespace

NetworkRates NetworkFor(const PlanRequest& request) {
  NetworkRates network = MeasuredNetwork(request);
  if (request.assumed_line_bits_per_second) {
    const double goodput = GoodputBytesPerSecond(*request.assumed_line_bits_per_second);
    for (InterfaceRates& rates : network.interfaces) rates = {goodput, goodput};
    for (LinkRates& link : network.links) {
      link.forward_bytes_per_second = link.backward_bytes_per_second = schedule::kUnlimited;
    }
  }
  if (request.assumed_delay) {
    for (LinkRates& link : network.links) {
      link.forward_latency = link.backward_latency = *request.assumed_delay;
    }
  }
  return network;
}

Status AddPrediction(const RunSpec& spec, v1::Plan* plan) {
  LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation,
                      schedule::Simulate(PipelineCostOf(*plan, spec, NetworkOf(*plan))));
  v1::Prediction& prediction = *plan->mutable_prediction();
  prediction.set_step_seconds(Seconds(simulation.step));
  prediction.set_lower_bound_seconds(Seconds(simulation.lower_bound));
  prediction.set_bottleneck(simulation.bottleneck);
  prediction.clear_stages();
  for (const schedule::StageUse& use : simulation.stages) {
    v1::PredictedStage& stage = *prediction.add_stages();
    stage.set_compute_seconds(Seconds(use.time.compute));
    stage.set_codec_seconds(Seconds(use.time.codec));
    stage.set_wait_above_seconds(Seconds(use.time.wait_above));
    stage.set_wait_below_seconds(Seconds(use.time.wait_below));
    stage.set_optimizer_seconds(Seconds(use.time.optimizer));
    stage.set_egress_share(use.egress_share);
    stage.set_ingress_share(use.ingress_share);
  }
  prediction.clear_links();
  for (const schedule::BoundaryUse& use : simulation.boundaries) {
    v1::PredictedLink& link = *prediction.add_links();
    link.set_forward_busy_share(use.forward.busy_share);
    link.set_backward_busy_share(use.backward.busy_share);
    link.set_forward_rate_share(use.forward.rate_share);
    link.set_backward_rate_share(use.backward.rate_share);
  }
  return absl::OkStatus();
}

Status AddCodecTable(const PlanRequest& request, const std::vector<uint32_t>& depths,
                     v1::Plan* plan) {
  if (plan->links().empty()) return absl::OkStatus();
  v1::Plan deep = *plan;
  for (size_t s = 0; s < depths.size(); ++s) {
    deep.mutable_stages(static_cast<int>(s))->set_depth(depths[s]);
  }
  std::vector<v1::CodecPrediction> rows;
  std::string own_name = "this run";
  for (const NamedCodecs& one : CommonCodecs()) {
    const bool own = request.spec.links.by_worker.empty() &&
                     Canonical(one.codecs.forward) == plan->links(0).forward_codec() &&
                     Canonical(one.codecs.backward) == plan->links(0).backward_codec();
    if (own) {
      rows.push_back(Summary(request.spec, std::string(one.name) + " (this run)", *plan, true));
      own_name.clear();
      continue;
    }
    bool known = false;
    LH_ASSIGN_OR_RETURN(v1::Plan other, WithCodecs(request, one.codecs, deep, &known));
    LH_RETURN_IF_ERROR(ChooseOrder(request.spec, &other));
    LH_RETURN_IF_ERROR(AddPrediction(request.spec, &other));
    rows.push_back(Summary(request.spec, one.name, other, known));
  }
  if (!own_name.empty()) rows.push_back(Summary(request.spec, own_name, *plan, true));
  for (v1::CodecPrediction& row : rows) {
    *plan->mutable_prediction()->add_codecs() = std::move(row);
  }
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
