#include "planner/codec_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/units.h"
#include "planner/links.h"
#include "planner/pipeline_cost.h"
#include "run/boundary/open_codecs.h"
#include "run/plan/chain.h"
#include "run/schedule/simulator.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

// One direction of a boundary that may have any of these codecs.
struct Open {
  size_t edge = 0;
  Direction direction = Direction::kForward;
  struct Choice {
    Flow flow;
    FlowEstimate times;
    double error = 0;
    double seconds = 0;  // that a microbatch keeps the link or a codec's thread busy
  };
  std::vector<Choice> choices;  // the finest first
  size_t chosen = 0;            // of them

  double error() const { return choices[chosen].error; }
};

class Chooser {
 public:
  Chooser(const PlanRequest& request, const std::stop_token& stop, Plan* plan)
      : request_(request), stop_(stop), plan_(*plan), network_(NetworkOf(*plan)) {}

  Status FindOpen();
  Status Choose();
  bool any_open() const { return !open_.empty() || unknown_ > 0; }
  std::string Text() const;

 private:
  const Edge& EdgeAt(const Open& open) const { return plan_.assignment.edges[open.edge]; }
  Status AddOpen(size_t edge, Direction direction);
  void Take(Open& open, size_t choice);
  // Each open direction gets the finest codec that keeps nothing busy for longer, else the
  // quickest.
  void TakeThoseWithin(double seconds);
  // The same distance from the coarsest, or the finest.
  void TakeFromCoarsest(size_t distance);
  StatusOr<double> Step();
  bool IsWorkLeft() const { return work_ < schedule::kMostWork && !request_.limit.IsOver(); }

  Status FindFastest();
  Status RaiseTogether();
  Status RaiseEach();

  const PlanRequest& request_;
  const std::stop_token& stop_;
  Plan& plan_;
  const NetworkRates network_;
  std::vector<Open> open_;
  size_t unknown_ = 0;                              // directions whose rate is not known
  uint64_t work_ = 0;                               // of simulations
  double fastest_ = 0, coarsest_ = 0, chosen_ = 0;  // steps
  size_t fastest_distance_ = 0;
};

bool LeavesOpen(const RunSpec& spec, const std::string& worker, Direction direction) {
  const CodecPair& pair = CodecsOfWorker(spec, worker);
  return IsAuto(direction == Direction::kForward ? pair.forward : pair.backward);
}

Status Chooser::AddOpen(size_t edge, Direction direction) {
  const Edge& between = plan_.assignment.edges[edge];
  const CandidateWorker& upper = request_.workers[between.from.stage];
  const CandidateWorker& lower = request_.workers[between.to.stage];
  const bool down = direction == Direction::kForward;
  const CandidateWorker &sender = down ? upper : lower, &receiver = down ? lower : upper;
  if (!LeavesOpen(request_.spec, sender.name, direction)) return absl::OkStatus();
  const double rate = AloneBytesPerSecond(network_, plan_.assignment, edge, direction);
  if (rate == schedule::kUnlimited) {
    ++unknown_;  // it has the coarsest already
    return absl::OkStatus();
  }
  Open open{.edge = edge, .direction = direction};
  LH_ASSIGN_OR_RETURN(const std::vector<codec::Rung> rungs,
                      CodecsToChooseFrom(request_.spec, direction));
  for (const codec::Rung& rung : rungs) {
    LH_ASSIGN_OR_RETURN(Flow flow, FlowWith(rung.codec, request_, direction));
    const Flow& now = down ? between.forward : between.backward;
    flow.bits_per_second = now.bits_per_second;
    flow.latency_seconds = now.latency_seconds;
    const FlowEstimate times = CodecTimesOf(sender, receiver, rung.codec, direction);
    const double wire = static_cast<double>(WithChunkHeaders(flow.bytes)) / rate;
    open.choices.push_back({std::move(flow), times, rung.error,
                            std::max({wire, times.encode_seconds, times.decode_seconds})});
  }
  open_.push_back(std::move(open));
  return absl::OkStatus();
}

Status Chooser::FindOpen() {
  for (size_t e = 0; e < plan_.assignment.edges.size(); ++e) {
    if (plan_.assignment.edges[e].kind != EdgeKind::kActivations) continue;
    LH_RETURN_IF_ERROR(AddOpen(e, Direction::kForward));
    LH_RETURN_IF_ERROR(AddOpen(e, Direction::kBackward));
  }
  return absl::OkStatus();
}

void Chooser::Take(Open& open, size_t choice) {
  open.chosen = choice;
  const Open::Choice& one = open.choices[choice];
  const bool down = open.direction == Direction::kForward;
  Edge& edge = plan_.assignment.edges[open.edge];
  EdgeEstimate& estimate = plan_.edges[open.edge];
  (down ? edge.forward : edge.backward) = one.flow;
  (down ? estimate.forward : estimate.backward) = one.times;
}

void Chooser::TakeThoseWithin(double seconds) {
  for (Open& open : open_) {
    const auto finest = std::ranges::find_if(
        open.choices, [seconds](double busy) { return busy <= seconds; }, &Open::Choice::seconds);
    const auto quickest = std::ranges::min_element(open.choices, {}, &Open::Choice::seconds);
    const auto taken = finest == open.choices.end() ? quickest : finest;
    Take(open, static_cast<size_t>(taken - open.choices.begin()));
  }
}

// With the better of few leads, as placement.h has it: the order of data is chosen later.
StatusOr<double> Chooser::Step() {
  schedule::PipelineCost cost = PipelineCostOf(plan_, request_.spec, network_);
  std::vector<uint32_t> leads = {0};
  uint32_t most = cost.microbatches - 1;
  for (uint32_t b = 0; b < cost.boundaries.size(); ++b) {
    most = std::min(most, cost.stages[chain::UpperStage(b)].depth);
  }
  const ScheduleTraits& schedule = TraitsOf(request_.spec.pipeline.schedule);
  const bool may_lead = schedule.searches_depth() && schedule.orders_data &&
                        request_.spec.pipeline.send_order != SendOrder::kAsReady;
  if (may_lead && most > 0) leads.push_back(most);
  double best = std::numeric_limits<double>::infinity();
  for (const uint32_t lead : leads) {
    for (size_t s = 1; s < cost.stages.size(); ++s) cost.stages[s].activation_lead = lead;
    LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, schedule::Simulate(cost, stop_));
    work_ += schedule::WorkOf(cost);
    best = std::min(best, absl::ToDoubleSeconds(simulation.step));
  }
  return best;
}

void Chooser::TakeFromCoarsest(size_t distance) {
  for (Open& open : open_) {
    const size_t last = open.choices.size() - 1;
    Take(open, last - std::min(last, distance));
  }
}

Status Chooser::FindFastest() {
  size_t most = 0;
  for (const Open& open : open_) most = std::max(most, open.choices.size());
  for (size_t distance = 0; distance < most; ++distance) {
    if (distance > 0 && request_.limit.IsOver()) break;
    TakeFromCoarsest(distance);
    LH_ASSIGN_OR_RETURN(const double step, Step());
    if (distance == 0) coarsest_ = step;
    if (distance > 0 && step >= fastest_) continue;
    fastest_ = step;
    fastest_distance_ = distance;
  }
  return absl::OkStatus();
}

Status Chooser::RaiseTogether() {
  std::vector<double> limits;
  for (const Open& open : open_) {
    for (const Open::Choice& choice : open.choices) limits.push_back(choice.seconds);
  }
  std::ranges::sort(limits);
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  size_t good = 0, bad = limits.size();  // of limits
  while (bad - good > 1 && !request_.limit.IsOver()) {
    const size_t middle = good + (bad - good) / 2;
    TakeThoseWithin(limits[middle]);
    LH_ASSIGN_OR_RETURN(const double step, Step());
    (step <= fastest_ * (1 + kCodecTolerance) ? good : bad) = middle;
  }
  TakeThoseWithin(limits[good]);
  return absl::OkStatus();
}

Status Chooser::RaiseEach() {
  std::vector<Open*> left;
  for (Open& open : open_) left.push_back(&open);
  while (!left.empty() && IsWorkLeft()) {
    const auto coarsest = std::ranges::max_element(left, {}, &Open::error);
    Open& open = **coarsest;
    const size_t before = open.chosen;
    if (before > 0) {
      Take(open, before - 1);
      LH_ASSIGN_OR_RETURN(const double step, Step());
      if (step <= fastest_ * (1 + kCodecTolerance)) continue;
      Take(open, before);
    }
    left.erase(coarsest);
  }
  return absl::OkStatus();
}

Status Chooser::Choose() {
  if (open_.empty()) return absl::OkStatus();
  LH_RETURN_IF_ERROR(FindFastest());
  LH_RETURN_IF_ERROR(RaiseTogether());
  LH_ASSIGN_OR_RETURN(const double together, Step());
  if (together > fastest_ * (1 + kCodecTolerance)) TakeFromCoarsest(fastest_distance_);
  LH_RETURN_IF_ERROR(RaiseEach());
  LH_ASSIGN_OR_RETURN(chosen_, Step());
  return absl::OkStatus();
}

std::string Chooser::Text() const {
  const auto counted = [&](Direction direction) {
    std::map<double, std::pair<std::string, size_t>> by_error;
    for (const Open& open : open_) {
      if (open.direction != direction) continue;
      auto& [codec, count] = by_error[open.error()];
      const Edge& edge = EdgeAt(open);
      codec = ToString((direction == Direction::kForward ? edge.forward : edge.backward).codec);
      ++count;
    }
    std::string text;
    for (const auto& [error, one] : by_error) {
      text += fmt::format("{}{} on {} link{}", text.empty() ? "" : ", ", one.first, one.second,
                          one.second == 1 ? "" : "s");
    }
    return text;
  };
  const std::string down = counted(Direction::kForward), up = counted(Direction::kBackward);
  const std::optional<double> error = request_.spec.links.error;
  std::string text = fmt::format(
      " Codecs are auto{}: each link has the finest with which the step stays within {:.0f}% of "
      "the fastest",
      error ? fmt::format(" (links.error {})", *error) : "", 100 * kCodecTolerance);
  if (!down.empty()) text += "; down " + down;
  if (!up.empty()) text += "; up " + up;
  if (!open_.empty()) {
    text += fmt::format(
        "; before depths were chosen a step took {}, and {} with the "
        "coarsest everywhere",
        FormatSeconds(chosen_), FormatSeconds(coarsest_));
  }
  if (unknown_ > 0) text += "; links whose rate is not known have the coarsest";
  return text + ".";
}

}  // namespace

StatusOr<std::vector<codec::Rung>> CodecsToChooseFrom(const RunSpec& spec, Direction direction) {
  std::vector<codec::Rung> rungs = OpenCodecs(spec, direction);
  if (!rungs.empty()) return rungs;
  const bool down = direction == Direction::kForward;
  return FailedPrecondition(
      "{} is auto, and replay.codec_times has the times of no codec that loses at most {}; add "
      "those of {}, or set replay.codecs to real",
      down ? "links.forward" : "links.backward",
      spec.links.error ? fmt::format("links.error {}", *spec.links.error) : "the pair default",
      down ? "gauss" : "dither");
}

std::vector<std::vector<CodecPair>> CodecsOf(const Assignment& assignment) {
  std::vector<std::vector<CodecPair>> by_replica;
  for (const Edge& edge : assignment.edges) {
    if (edge.kind != EdgeKind::kActivations) continue;
    by_replica.resize(std::max<size_t>(by_replica.size(), edge.from.replica + 1));
    by_replica[edge.from.replica].push_back({edge.forward.codec, edge.backward.codec});
  }
  return by_replica;
}

std::string RunYamlOf(const RunSpec& spec, const Assignment& assignment) {
  if (!spec.links.HasAutoCodecs()) return ToYaml(spec);
  RunSpec settled = spec;
  settled.links.chosen = CodecsOf(assignment);
  return ToYaml(settled);
}

StatusOr<std::string> ChooseCodecs(const PlanRequest& request, const std::stop_token& stop,
                                   Plan* plan) {
  if (!request.spec.links.HasAutoCodecs() || request.workers.size() < 2) return "";
  if (request.spec.links.ChosenOf(0, request.workers.size() - 1) != nullptr) {
    return " Codecs are auto: links keep those that the run's first plan chose.";
  }
  Chooser chooser(request, stop, plan);
  LH_RETURN_IF_ERROR(chooser.FindOpen());
  if (!chooser.any_open()) return "";
  LH_RETURN_IF_ERROR(chooser.Choose());
  return chooser.Text();
}

}  // namespace longhaul::coordinator
