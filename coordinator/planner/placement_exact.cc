#include <algorithm>
#include <vector>

#include "coordinator/planner/placement_search.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

// A chain must be better by so much: what is left out of a simulation is more.
constexpr double kStepGains = 1 - 1e-9;

class AllChains {
 public:
  AllChains(const PlacementProblem& problem, const ChainBound& bound,
            const PlacementOptions& options, Placement* result)
      : problem_(problem),
        bound_(bound),
        options_(options),
        result_(result),
        taken_(problem.workers.size()),
        work_of_one_(2 * uint64_t{problem.microbatches} * problem.stages * problem.stages) {}

  StatusOr<bool> Go() {
    LH_RETURN_IF_ERROR(Extend({}, problem_.layers));
    return !spent_;
  }

 private:
  Status Extend(const Segment& above, uint32_t layers_left) {
    const auto place = static_cast<uint32_t>(chain_.workers.size());
    if (place == problem_.stages) return Consider();
    const uint32_t stages_below = problem_.stages - place - 1;
    for (uint32_t w = 0; w < taken_.size() && !spent_; ++w) {
      if (taken_[w]) continue;
      taken_[w] = true;
      chain_.workers.push_back(w);
      const uint32_t least = stages_below == 0 ? layers_left : 1;
      for (uint32_t layers = least; layers + stages_below <= layers_left; ++layers) {
        const Segment own = bound_.Stage(w, layers, bound_.RoleAt(place));
        const Segment so_far = place == 0 ? own : bound_.Join(above, own);
        ++result_->moves;
        if (!(so_far.Bound() < result_->step_seconds * kStepGains)) continue;
        chain_.layers.push_back(layers);
        LH_RETURN_IF_ERROR(Extend(so_far, layers_left - layers));
        chain_.layers.pop_back();
      }
      chain_.workers.pop_back();
      taken_[w] = false;
    }
    return absl::OkStatus();
  }

  Status Consider() {
    if (!(bound_.Of(chain_) < result_->step_seconds * kStepGains)) return absl::OkStatus();
    spent_ = spent_ || (work_ += work_of_one_) > options_.most_work;
    if (spent_) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(const double step, SimulatedStep(problem_, chain_, options_.stop));
    if (!(step < result_->step_seconds * kStepGains)) return absl::OkStatus();
    result_->step_seconds = step;
    result_->replicas = {chain_};
    return absl::OkStatus();
  }

  const PlacementProblem& problem_;
  const ChainBound& bound_;
  const PlacementOptions& options_;
  Placement* const result_;
  PlacedChain chain_;
  std::vector<bool> taken_;
  const uint64_t work_of_one_;
  uint64_t work_ = 0;
  bool spent_ = false;
};

}  // namespace

double ChainsOf(const PlacementProblem& problem) {
  double count = 1;
  for (uint32_t s = 0; s < problem.stages; ++s) {
    count *= static_cast<double>(problem.workers.size() - s);
  }
  // The ways to cut the row of layers.
  for (uint32_t s = 1; s < problem.stages; ++s) {
    count *= static_cast<double>(problem.layers - s) / s;
  }
  return count;
}

StatusOr<bool> SearchAllChains(const PlacementProblem& problem, const ChainBound& bound,
                               const PlacementOptions& options, Placement* result) {
  return AllChains(problem, bound, options, result).Go();
}

}  // namespace longhaul::coordinator
