#include "run/schedule/bound.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "run/plan/chain.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {
namespace {

// Where a lone slice is when, in an empty pipeline; seconds.
struct Path {
  // When stage s may begin its forward, and when its forward message enters / has left the wire.
  std::vector<double> forward_begins, forward_sent_from, forward_on_wire;
  std::vector<double> backward_on_wire;  // transfer time of the gradient over boundary b
  // From the moment that a gradient of boundary b has left the wire, or a backward of stage s has
  // ended, to the end of stage 0's backward.
  std::vector<double> after_gradient, after_backward;
  // From the moment that an activation of boundary b has left the wire to the end of stage 0's
  // backward.
  std::vector<double> after_activation;
  std::vector<double> gradient_enters_wire;  // earliest, boundary b
};

// The largest of the services on a way through all stages: what a microbatch's other slices add to
// the way of one, as they follow each other through whatever takes longest.
double LongestOnTheWay(const PipelineCost& cost, absl::Duration StageCost::*compute,
                       const std::vector<double>& on_wire) {
  double longest = 0;
  for (const StageCost& stage : cost.stages) {
    longest = std::max(longest, absl::ToDoubleSeconds(stage.*compute));
  }
  for (const double one : on_wire) longest = std::max(longest, one);
  return longest;
}

double OnWire(const FlowCost& flow, const StageCost& sender, const StageCost& receiver) {
  return flow.bytes / std::min({sender.egress_bytes_per_second, receiver.ingress_bytes_per_second,
                                flow.bytes_per_second});
}

Path TracePath(const PipelineCost& cost) {
  const auto stages = static_cast<uint32_t>(cost.stages.size());
  const uint32_t boundaries = chain::Boundaries(stages);
  Path path;
  path.forward_begins.assign(stages, 0);
  path.after_backward.assign(stages, 0);
  for (auto* v : {&path.forward_sent_from, &path.forward_on_wire, &path.backward_on_wire,
                  &path.after_gradient, &path.after_activation, &path.gradient_enters_wire}) {
    v->assign(boundaries, 0);
  }
  for (uint32_t b = 0; b < boundaries; ++b) {
    const FlowCost &down = cost.boundaries[b].forward, &up = cost.boundaries[b].backward;
    const uint32_t above = chain::UpperStage(b), below = chain::LowerStage(b);
    const StageCost &upper = cost.stages[above], &lower = cost.stages[below];
    path.forward_on_wire[b] = OnWire(down, upper, lower);
    path.backward_on_wire[b] = OnWire(up, lower, upper);
    path.forward_sent_from[b] =
        path.forward_begins[above] + absl::ToDoubleSeconds(upper.forward + down.encode);
    path.forward_begins[below] = path.forward_sent_from[b] + path.forward_on_wire[b] +
                                 absl::ToDoubleSeconds(down.latency + down.decode);
    path.after_gradient[b] =
        absl::ToDoubleSeconds(up.latency + up.decode + upper.backward) + path.after_backward[above];
    path.after_backward[below] =
        absl::ToDoubleSeconds(up.encode) + path.backward_on_wire[b] + path.after_gradient[b];
  }
  // Downwards and back: what follows once the last stage's input is there. No backward is there
  // before its microbatch has gone forward whole, and then all of its slices go back.
  const double others = cost.slices - 1;
  const double at_last =
      absl::ToDoubleSeconds(cost.stages.back().forward + cost.stages.back().backward);
  double after_input = at_last + path.after_backward.back() +
                       others * LongestOnTheWay(cost, &StageCost::backward, path.backward_on_wire);
  double backward_ends = path.forward_begins.back() + at_last +
                         others * LongestOnTheWay(cost, &StageCost::forward, path.forward_on_wire);
  for (uint32_t b = boundaries; b-- > 0;) {
    const FlowCost &down = cost.boundaries[b].forward, &up = cost.boundaries[b].backward;
    const StageCost& upper = cost.stages[chain::UpperStage(b)];
    path.after_activation[b] = absl::ToDoubleSeconds(down.latency + down.decode) + after_input;
    after_input = absl::ToDoubleSeconds(upper.forward + down.encode) + path.forward_on_wire[b] +
                  path.after_activation[b];
    path.gradient_enters_wire[b] = backward_ends + absl::ToDoubleSeconds(up.encode);
    backward_ends = path.gradient_enters_wire[b] + path.backward_on_wire[b] +
                    absl::ToDoubleSeconds(up.latency + up.decode + upper.backward);
  }
  return path;
}

// The largest bound so far, and what sets it.
class Largest {
 public:
  explicit Largest(uint32_t slices) : slices_(slices) {}

  template <class Name>
  void Consider(double head, double service, double tail, const Name& name) {
    const double bound = head + slices_ * service + tail;
    if (!(bound > seconds_)) return;
    seconds_ = bound;
    name_ = name();
  }
  double seconds() const { return seconds_; }
  const std::string& name() const { return name_; }

 private:
  const double slices_;
  double seconds_ = 0;
  std::string name_;
};

// An interface carries up to two kinds of message; the earliest first use and the shortest way out
// of the two hold for any order.
void ConsiderInterfaces(const PipelineCost& cost, const Path& path, uint32_t s, Largest* largest) {
  const auto stages = static_cast<uint32_t>(cost.stages.size());
  const bool down = !chain::IsLast(s, stages), up = !chain::IsFirst(s);
  if (!down && !up) return;
  // Only used where there is one.
  const uint32_t above = up ? chain::BoundaryAbove(s) : 0, below = chain::BoundaryBelow(s);
  const double sent = (down ? cost.boundaries[below].forward.bytes : 0) +
                      (up ? cost.boundaries[above].backward.bytes : 0);
  largest->Consider(down ? path.forward_sent_from[below] : path.gradient_enters_wire[above],
                    sent / cost.stages[s].egress_bytes_per_second,
                    up ? path.after_gradient[above] : path.after_activation[below],
                    [&] { return fmt::format("egress of stage {}", s); });
  const double received = (up ? cost.boundaries[above].forward.bytes : 0) +
                          (down ? cost.boundaries[below].backward.bytes : 0);
  largest->Consider(up ? path.forward_sent_from[above] : path.gradient_enters_wire[below],
                    received / cost.stages[s].ingress_bytes_per_second,
                    down ? path.after_gradient[below] : path.after_activation[above],
                    [&] { return fmt::format("ingress of stage {}", s); });
}

// The embedding's end has its gradient when the first stage's passes end, the head's when the last
// one's do.
void ConsiderTied(const PipelineCost& cost, const Path& path, Largest* largest) {
  const StageCost &first = cost.stages.front(), &last = cost.stages.back();
  const uint32_t last_stage = chain::LastStage(static_cast<uint32_t>(cost.stages.size()));
  const FlowCost &down = cost.tied->forward, &up = cost.tied->backward;
  absl::Duration norm_up;
  for (const BoundaryCost& boundary : cost.boundaries) norm_up += boundary.backward.latency;
  // What bounds the passes is named, unless the matrix takes longer than they do.
  const double passes = largest->seconds();
  const std::string what = largest->name();
  const auto name = [&](double matrix, uint32_t from, uint32_t to) {
    return matrix > passes ? fmt::format("tied matrix from stage {} to stage {}", from, to) : what;
  };
  const double sent_down = OnWire(down, first, last), sent_up = OnWire(up, last, first);
  largest->Consider(passes, 0, sent_down + absl::ToDoubleSeconds(down.latency + norm_up),
                    [&] { return name(sent_down, 0, last_stage); });
  largest->Consider(path.forward_begins.back(), absl::ToDoubleSeconds(last.forward + last.backward),
                    sent_up + absl::ToDoubleSeconds(up.latency),
                    [&] { return name(sent_up, last_stage, 0); });
}

}  // namespace

BusiestResource FindBusiestResource(const PipelineCost& cost) {
  BusiestResource busiest;
  const auto consider = [&](double seconds, double bytes, const auto& name) {
    if (!(absl::Seconds(seconds) > busiest.step)) return;
    busiest = {.name = name(), .step = absl::Seconds(seconds), .bytes = bytes};
  };
  const double slices = cost.AllSlices();
  std::vector<double> sent(cost.stages.size()), received(cost.stages.size());
  const auto carry = [&](uint32_t from, uint32_t to, const FlowCost& flow, double times) {
    const double bytes = times * flow.bytes;
    sent[from] += bytes;
    received[to] += bytes;
    consider(bytes / flow.bytes_per_second, bytes,
             [&] { return fmt::format("link from stage {} to stage {}", from, to); });
  };
  const auto stages = static_cast<uint32_t>(cost.stages.size());
  for (uint32_t b = 0; b < chain::Boundaries(stages); ++b) {
    carry(chain::UpperStage(b), chain::LowerStage(b), cost.boundaries[b].forward, slices);
    carry(chain::LowerStage(b), chain::UpperStage(b), cost.boundaries[b].backward, slices);
  }
  if (cost.tied) {
    carry(0, chain::LastStage(stages), cost.tied->forward, 1);
    carry(chain::LastStage(stages), 0, cost.tied->backward, 1);
  }
  for (uint32_t s = 0; s < stages; ++s) {
    const StageCost& stage = cost.stages[s];
    sent[s] += stage.exchange_sent_bytes;
    received[s] += stage.exchange_received_bytes;
    consider(absl::ToDoubleSeconds(slices * (stage.forward + stage.backward) + stage.optimizer), 0,
             [&] { return fmt::format("compute of stage {}", s); });
    consider(sent[s] / stage.egress_bytes_per_second, sent[s],
             [&] { return fmt::format("egress of stage {}", s); });
    consider(received[s] / stage.ingress_bytes_per_second, received[s],
             [&] { return fmt::format("ingress of stage {}", s); });
  }
  return busiest;
}

LowerBound ComputeLowerBound(const PipelineCost& cost) {
  if (TraitsOf(cost.schedule).overlaps_steps) {
    const BusiestResource busiest = FindBusiestResource(cost);
    return {busiest.step, busiest.name};
  }
  const auto stages = static_cast<uint32_t>(cost.stages.size());
  const Path path = TracePath(cost);
  Largest largest(cost.AllSlices());
  for (uint32_t s = 0; s < stages; ++s) {
    const StageCost& stage = cost.stages[s];
    largest.Consider(path.forward_begins[s], absl::ToDoubleSeconds(stage.forward + stage.backward),
                     path.after_backward[s], [&] { return fmt::format("compute of stage {}", s); });
    ConsiderInterfaces(cost, path, s, &largest);
  }
  for (uint32_t b = 0; b < chain::Boundaries(stages); ++b) {
    const FlowCost &down = cost.boundaries[b].forward, &up = cost.boundaries[b].backward;
    const uint32_t upper = chain::UpperStage(b), lower = chain::LowerStage(b);
    largest.Consider(path.forward_sent_from[b], down.bytes / down.bytes_per_second,
                     path.after_activation[b],
                     [&] { return fmt::format("link from stage {} to stage {}", upper, lower); });
    largest.Consider(path.gradient_enters_wire[b], up.bytes / up.bytes_per_second,
                     path.after_gradient[b],
                     [&] { return fmt::format("link from stage {} to stage {}", lower, upper); });
  }
  if (cost.tied) ConsiderTied(cost, path, &largest);
  LowerBound bound{absl::Seconds(largest.seconds()) + cost.stages.front().optimizer,
                   largest.name()};
  // Where another stage's optimizer takes longer than filling and draining.
  const BusiestResource busiest = FindBusiestResource(cost);
  if (busiest.step > bound.step) bound = {busiest.step, busiest.name};
  return bound;
}

}  // namespace longhaul::schedule
