#include "tests/bench/planner/exchange_rings.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/pipeline_cost.h"
#include "planner/replicas.h"
#include "run/schedule/simulator.h"
#include "transport/replicas/traffic.h"

namespace longhaul::bench {
namespace {

using Matrix = std::vector<std::vector<double>>;  // [from][to], by replica

// The replicas of one stage.
class StageExchange {
 public:
  StageExchange(const Plan& plan, const replicas::Layout& layout, uint32_t stage)
      : replicas_(layout.options().replicas),
        bytes_per_second_(replicas_, std::vector<double>(replicas_)),
        latency_(bytes_per_second_),
        gradients_(bytes_per_second_) {
    const Assignment& assignment = plan.assignment;
    const coordinator::NetworkRates network = coordinator::NetworkOf(plan);
    for (size_t e = 0; e < assignment.edges.size(); ++e) {
      const Edge& edge = assignment.edges[e];
      if (edge.kind != EdgeKind::kReplicas || edge.from.stage != stage) continue;
      const uint32_t one = edge.from.replica, other = edge.to.replica;
      bytes_per_second_[one][other] =
          AloneBytesPerSecond(network, assignment, e, Direction::kForward);
      bytes_per_second_[other][one] =
          AloneBytesPerSecond(network, assignment, e, Direction::kBackward);
      latency_[one][other] = absl::ToDoubleSeconds(network.links[e].forward.latency);
      latency_[other][one] = absl::ToDoubleSeconds(network.links[e].backward.latency);
      longest_latency_ = std::max({longest_latency_, latency_[one][other], latency_[other][one]});
    }
    for (uint32_t from = 0; from < replicas_; ++from) {
      const size_t place = assignment.PlaceOf({.replica = from, .stage = stage});
      egress_.push_back(network.interfaces[place].egress_bytes_per_second);
      for (uint32_t to = 0; to < replicas_; ++to) {
        if (to != from) gradients_[from][to] = Gradients(layout, from, to);
      }
      const auto traffic = UsualTraffic(layout, from, from == 0 ? 1 : 0);
      parameters_.push_back(static_cast<double>(traffic.parameters));
    }
  }

  double Gradients() const {
    double longest = 0;
    for (uint32_t from = 0; from < replicas_; ++from) {
      double sent = 0;
      for (uint32_t to = 0; to < replicas_; ++to) {
        if (to == from) continue;
        sent += gradients_[from][to];
        longest = std::max(longest, gradients_[from][to] / bytes_per_second_[from][to]);
      }
      longest = std::max(longest, sent / egress_[from]);
    }
    return longest + longest_latency_;
  }

  double ParametersStraight() const {
    double longest = 0;
    for (uint32_t from = 0; from < replicas_; ++from) {
      longest = std::max(longest, (replicas_ - 1) * parameters_[from] / egress_[from]);
      for (uint32_t to = 0; to < replicas_; ++to) {
        if (to == from) continue;
        longest = std::max(longest, parameters_[from] / bytes_per_second_[from][to]);
      }
    }
    return longest + longest_latency_;
  }

  double ParametersAlongARing() const {
    std::vector<uint32_t> order(replicas_);
    std::iota(order.begin(), order.end(), 0);
    double best = schedule::kUnlimited;
    do best = std::min(best, Along(order));
    while (std::next_permutation(order.begin() + 1, order.end()));
    return best;
  }

 private:
  static double Gradients(const replicas::Layout& layout, uint32_t from, uint32_t to) {
    return static_cast<double>(UsualTraffic(layout, from, to).gradients);
  }

  // Each hop carries all parameters but those that its end owns.
  double Along(const std::vector<uint32_t>& order) const {
    const double all = std::reduce(parameters_.begin(), parameters_.end());
    double longest = 0, latency = 0;
    for (uint32_t i = 0; i < replicas_; ++i) {
      const uint32_t from = order[i], to = order[(i + 1) % replicas_];
      longest = std::max(longest, (all - parameters_[to]) / bytes_per_second_[from][to]);
      latency = std::max(latency, latency_[from][to]);
    }
    return longest + (replicas_ - 1) * latency;
  }

  const uint32_t replicas_;
  Matrix bytes_per_second_, latency_;
  Matrix gradients_;
  std::vector<double> egress_, parameters_;  // by replica; the latter of its shards
  double longest_latency_ = 0;
};

}  // namespace

StatusOr<Exchanges> ExchangesOf(const Plan& plan, const RunSpec& spec) {
  LH_ASSIGN_OR_RETURN(const std::vector<replicas::Layout> layouts,
                      coordinator::LayoutsOf(spec, plan.assignment));
  Exchanges all;
  for (uint32_t stage = 0; stage < layouts.size(); ++stage) {
    const StageExchange exchange(plan, layouts[stage], stage);
    all.straight = std::max(all.straight, exchange.Gradients() + exchange.ParametersStraight());
    all.ring = std::max(all.ring, exchange.Gradients() + exchange.ParametersAlongARing());
  }
  return all;
}

}  // namespace longhaul::bench
