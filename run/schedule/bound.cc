#include "run/schedule/bound.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "run/schedule/simulator.h"

namespace longhaul::schedule {
namespace {

// Where a lone microbatch is when, in an empty pipeline; seconds.
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

Path TracePath(const PipelineCost& cost) {
  const size_t stages = cost.stages.size();
  Path path;
  path.forward_begins.assign(stages, 0);
  path.after_backward.assign(stages, 0);
  for (auto* v : {&path.forward_sent_from, &path.forward_on_wire, &path.backward_on_wire,
                  &path.after_gradient, &path.after_activation, &path.gradient_enters_wire}) {
    v->assign(stages - 1, 0);
  }
  for (size_t b = 0; b + 1 < stages; ++b) {
    const BoundaryCost& boundary = cost.boundaries[b];
    path.forward_on_wire[b] =
        boundary.forward_bytes /
        std::min({cost.stages[b].egress_bytes_per_second,
                  cost.stages[b + 1].ingress_bytes_per_second, boundary.forward_bytes_per_second});
    path.backward_on_wire[b] =
        boundary.backward_bytes /
        std::min({cost.stages[b + 1].egress_bytes_per_second,
                  cost.stages[b].ingress_bytes_per_second, boundary.backward_bytes_per_second});
    path.forward_sent_from[b] =
        path.forward_begins[b] +
        absl::ToDoubleSeconds(cost.stages[b].forward + boundary.forward_encode);
    path.forward_begins[b + 1] =
        path.forward_sent_from[b] + path.forward_on_wire[b] +
        absl::ToDoubleSeconds(boundary.forward_latency + boundary.forward_decode);
  }
  for (size_t b = 0; b + 1 < stages; ++b) {
    const BoundaryCost& boundary = cost.boundaries[b];
    path.after_gradient[b] =
        absl::ToDoubleSeconds(boundary.backward_latency + boundary.backward_decode +
                              cost.stages[b].backward) +
        path.after_backward[b];
    path.after_backward[b + 1] = absl::ToDoubleSeconds(boundary.backward_encode) +
                                 path.backward_on_wire[b] + path.after_gradient[b];
  }
  // Downwards and back: what follows once the last stage's input is there.
  double after_input =
      absl::ToDoubleSeconds(cost.stages.back().forward + cost.stages.back().backward) +
      path.after_backward.back();
  double backward_ends =
      path.forward_begins.back() +
      absl::ToDoubleSeconds(cost.stages.back().forward + cost.stages.back().backward);
  for (size_t b = stages - 1; b-- > 0;) {
    const BoundaryCost& boundary = cost.boundaries[b];
    path.after_activation[b] =
        absl::ToDoubleSeconds(boundary.forward_latency + boundary.forward_decode) + after_input;
    after_input = absl::ToDoubleSeconds(cost.stages[b].forward + boundary.forward_encode) +
                  path.forward_on_wire[b] + path.after_activation[b];
    path.gradient_enters_wire[b] = backward_ends + absl::ToDoubleSeconds(boundary.backward_encode);
    backward_ends = path.gradient_enters_wire[b] + path.backward_on_wire[b] +
                    absl::ToDoubleSeconds(boundary.backward_latency + boundary.backward_decode +
                                          cost.stages[b].backward);
  }
  return path;
}

}  // namespace

LowerBound ComputeLowerBound(const PipelineCost& cost) {
  const size_t stages = cost.stages.size();
  const auto microbatches = static_cast<double>(cost.microbatches);
  const Path path = TracePath(cost);
  double best = 0;
  std::string bottleneck;
  const auto consider = [&](double head, double service, double tail, const auto& name) {
    const double bound = head + microbatches * service + tail;
    if (bound > best) {
      best = bound;
      bottleneck = name();
    }
  };
  for (size_t s = 0; s < stages; ++s) {
    const StageCost& stage = cost.stages[s];
    consider(path.forward_begins[s], absl::ToDoubleSeconds(stage.forward + stage.backward),
             path.after_backward[s], [&] { return fmt::format("compute of stage {}", s); });
    // An interface carries up to two kinds of message; the earliest first use and the shortest way
    // out of the two hold for any order.
    const bool down = s + 1 < stages, up = s > 0;
    if (!down && !up) continue;
    const double sent = (down ? cost.boundaries[s].forward_bytes : 0) +
                        (up ? cost.boundaries[s - 1].backward_bytes : 0);
    consider(down ? path.forward_sent_from[s] : path.gradient_enters_wire[s - 1],
             sent / stage.egress_bytes_per_second,
             up ? path.after_gradient[s - 1] : path.after_activation[s],
             [&] { return fmt::format("egress of stage {}", s); });
    const double received = (up ? cost.boundaries[s - 1].forward_bytes : 0) +
                            (down ? cost.boundaries[s].backward_bytes : 0);
    consider(up ? path.forward_sent_from[s - 1] : path.gradient_enters_wire[s],
             received / stage.ingress_bytes_per_second,
             down ? path.after_gradient[s] : path.after_activation[s - 1],
             [&] { return fmt::format("ingress of stage {}", s); });
  }
  for (size_t b = 0; b + 1 < stages; ++b) {
    const BoundaryCost& boundary = cost.boundaries[b];
    consider(path.forward_sent_from[b], boundary.forward_bytes / boundary.forward_bytes_per_second,
             path.after_activation[b],
             [&] { return fmt::format("link from stage {} to stage {}", b, b + 1); });
    consider(path.gradient_enters_wire[b],
             boundary.backward_bytes / boundary.backward_bytes_per_second, path.after_gradient[b],
             [&] { return fmt::format("link from stage {} to stage {}", b + 1, b); });
  }
  return {absl::Seconds(best) + cost.stages[0].optimizer, bottleneck};
}

}  // namespace longhaul::schedule
