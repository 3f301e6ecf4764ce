#include <algorithm>
#include <vector>

#include "planner/placement_search.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

// A placement must be better by so much: what is left out of a simulation is more.
constexpr double kStepGains = 1 - 1e-9;

// Replica by replica, stage by stage. The first replica's layers are those of all.
class AllReplicas {
 public:
  AllReplicas(const PlacementProblem& problem, const ChainBound& bound,
              const ExchangeBound& exchange, const PlacementOptions& options, Placement* result)
      : problem_(problem),
        bound_(bound),
        exchange_(exchange),
        options_(options),
        result_(result),
        replicas_(1),
        taken_(problem.workers.size()),
        columns_(problem.stages),
        work_of_one_(2 * uint64_t{problem.microbatches} * problem.stages * problem.stages *
                     problem.replicas) {}

  StatusOr<bool> Go() {
    LH_RETURN_IF_ERROR(Extend({}, problem_.layers));
    return !spent_;
  }

 private:
  bool IsWorthIt(double bound) const {
    return IsPossible(bound) && bound < result_->step_seconds * kStepGains;
  }

  Status Extend(const Segment& above, uint32_t layers_left) {
    const auto place = static_cast<uint32_t>(replicas_.back().workers.size());
    if (place == problem_.stages) return NextReplica();
    const bool is_first = replicas_.size() == 1;
    const uint32_t stages_below = problem_.stages - place - 1;
    // Replicas are numbered by the first worker of each.
    const uint32_t from =
        place == 0 && !is_first ? replicas_[replicas_.size() - 2].workers.front() + 1 : 0;
    // Each of those behind begins with a worker of a later name.
    const auto behind = static_cast<uint32_t>(problem_.replicas - replicas_.size());
    const auto end = static_cast<uint32_t>(taken_.size()) - (place == 0 ? behind : 0);
    for (uint32_t w = from; w < end && !spent_; ++w) {
      if (taken_[w]) continue;
      const ExchangeBound::Column column = columns_[place];
      std::vector<uint32_t> others;
      for (size_t r = 0; r + 1 < replicas_.size(); ++r) {
        others.push_back(replicas_[r].workers[place]);
      }
      if (problem_.replicas > 1) columns_[place] = exchange_.With(column, others, w);
      taken_[w] = true;
      replicas_.back().workers.push_back(w);
      const uint32_t fixed = is_first ? 0 : replicas_.front().layers[place];
      const uint32_t least = fixed > 0 ? fixed : stages_below == 0 ? layers_left : 1;
      const uint32_t most = fixed > 0 ? fixed : layers_left - stages_below;
      for (uint32_t layers = least; layers <= most; ++layers) {
        const Segment own = bound_.Stage(w, layers, bound_.RoleAt(place));
        const Segment so_far = place == 0 ? own : bound_.Join(above, own);
        ++result_->moves;
        replicas_.back().layers.push_back(layers);
        if (IsWorthIt(so_far.Bound() + ExchangeSoFar())) {
          LH_RETURN_IF_ERROR(Extend(so_far, layers_left - layers));
        }
        replicas_.back().layers.pop_back();
      }
      replicas_.back().workers.pop_back();
      taken_[w] = false;
      columns_[place] = column;
    }
    return absl::OkStatus();
  }

  // Between those workers whose layers are known.
  double ExchangeSoFar() const {
    if (problem_.replicas == 1) return 0;
    double transfer = 0, latency = 0;
    const std::vector<uint32_t>& layers = replicas_.front().layers;
    for (uint32_t s = 0; s < layers.size(); ++s) {
      transfer = std::max(
          transfer, exchange_.Bytes(bound_.RoleAt(s), layers[s]) * columns_[s].seconds_per_byte);
      latency = std::max(latency, columns_[s].latency);
    }
    return exchange_.Seconds(transfer, latency);
  }

  Status NextReplica() {
    if (replicas_.size() == problem_.replicas) return Consider();
    replicas_.emplace_back();
    LH_RETURN_IF_ERROR(Extend({}, problem_.layers));
    replicas_.pop_back();
    return absl::OkStatus();
  }

  Status Consider() {
    double bound = 0;
    for (const PlacedChain& chain : replicas_) bound = std::max(bound, bound_.Of(chain));
    if (!IsWorthIt(bound + exchange_.Of(replicas_))) return absl::OkStatus();
    spent_ = spent_ || (work_ += work_of_one_) > options_.most_work ||
             (!result_->replicas.empty() && options_.limit.IsOver());
    if (spent_) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(const double step, SimulatedStep(problem_, replicas_, options_.stop));
    if (!(step < result_->step_seconds * kStepGains)) return absl::OkStatus();
    result_->step_seconds = step;
    result_->replicas = replicas_;
    return absl::OkStatus();
  }

  const PlacementProblem& problem_;
  const ChainBound& bound_;
  const ExchangeBound& exchange_;
  const PlacementOptions& options_;
  Placement* const result_;
  PlacedReplicas replicas_;  // the last one is being extended
  std::vector<bool> taken_;
  std::vector<ExchangeBound::Column> columns_;  // of what is placed
  const uint64_t work_of_one_;
  uint64_t work_ = 0;
  bool spent_ = false;
};

}  // namespace

double WaysToPlace(const PlacementProblem& problem) {
  double count = 1;
  for (uint32_t c = 0; c < problem.stages * problem.replicas; ++c) {
    count *= static_cast<double>(problem.workers.size() - c);
  }
  for (uint32_t r = 2; r <= problem.replicas; ++r) count /= r;
  // The ways to cut the row of layers.
  for (uint32_t s = 1; s < problem.stages; ++s) {
    count *= static_cast<double>(problem.layers - s) / s;
  }
  return count;
}

StatusOr<bool> SearchAllReplicas(const PlacementProblem& problem, const ChainBound& bound,
                                 const ExchangeBound& exchange, const PlacementOptions& options,
                                 Placement* result) {
  return AllReplicas(problem, bound, exchange, options, result).Go();
}

}  // namespace longhaul::coordinator
