#include "run/schedule/tune.h"

#include <algorithm>
#include <utility>

namespace longhaul::schedule {
namespace {

// Of two steps that differ by less neither is better: what the simulator leaves out is more.
constexpr double kAlike = 1.0005;
// Microbatches times stages squared, as a simulation's time is: its events, and the stages that
// each of them looks at. A millisecond or two for eight stages with 64 microbatches, 4,096.
constexpr uint64_t kLarge = 10'000, kHuge = 150'000;

struct Opinion {
  absl::Duration step = absl::InfiniteDuration();   // shared interfaces lose nothing
  absl::Duration score = absl::InfiniteDuration();  // the mean with those that do
};

class Tuner {
 public:
  Tuner(const PipelineCost& cost, const TuneOptions& options)
      : cost_(cost),
        options_(options),
        size_(uint64_t{cost.microbatches} * cost.stages.size() * cost.stages.size()) {}

  StatusOr<Tuning> Go() {
    const PipelineCost limited = cost_;
    LH_ASSIGN_OR_RETURN(const Opinion most, FindLead(Search::kFine));
    const uint32_t lead_of_most = lead_;
    Opinion best = most, unlimited = most;
    if (options_.depths) {
      if (IsLimited()) {
        SetDepths([this](size_t) { return cost_.microbatches; });
        LH_ASSIGN_OR_RETURN(unlimited, FindLead(Search::kFine));
      }
      cost_ = limited;
      lead_ = lead_of_most;
      SetLead(lead_);
      if (size_ <= kHuge) {
        const absl::Duration target = std::max(unlimited.score * (1 + kDepthTolerance), most.score);
        LH_ASSIGN_OR_RETURN(best, LowerDepths(target));
      }
    }
    for (const StageCost& stage : cost_.stages) {
      result_.depths.push_back(stage.depth);
      result_.leads.push_back(stage.activation_lead);
    }
    result_.step = best.step;
    result_.limited = most.step;
    result_.unlimited = unlimited.step;
    SetLead(0);
    LH_ASSIGN_OR_RETURN(result_.as_ready, Step(1));
    return std::move(result_);
  }

 private:
  enum class Search : uint8_t { kFine, kCoarse };

  StatusOr<absl::Duration> Step(double shared_efficiency) {
    ++result_.simulations;
    cost_.shared_efficiency = shared_efficiency;
    LH_ASSIGN_OR_RETURN(const Simulation simulation, Simulate(cost_));
    return simulation.step;
  }

  // Infinite where the score is not below `limit`: then half of it is enough to know.
  StatusOr<Opinion> Judge(absl::Duration limit) {
    LH_ASSIGN_OR_RETURN(const absl::Duration step, Step(1));
    if (step > limit) return Opinion{};
    LH_ASSIGN_OR_RETURN(const absl::Duration pessimistic, Step(kPessimisticEfficiency));
    const absl::Duration score = (step + pessimistic) / 2;
    return score > limit ? Opinion{} : Opinion{step, score};
  }

  uint32_t DepthOf(size_t stage) const {
    return EffectiveDepth({.kind = cost_.schedule,
                           .stage = StageIndex(static_cast<uint32_t>(stage)),
                           .stages = static_cast<uint32_t>(cost_.stages.size()),
                           .microbatches = cost_.microbatches,
                           .depth = cost_.stages[stage].depth});
  }

  bool IsLimited() const {
    return std::any_of(cost_.stages.begin(), cost_.stages.end(),
                       [this](const StageCost& stage) { return stage.depth < cost_.microbatches; });
  }

  template <class Depth>
  void SetDepths(const Depth& depth) {
    for (size_t s = 0; s < cost_.stages.size(); ++s) cost_.stages[s].depth = depth(s);
  }

  void SetLead(uint32_t lead) {
    for (size_t s = 0; s < cost_.stages.size(); ++s) {
      cost_.stages[s].activation_lead = s == 0 ? 0 : lead;
      lead = std::min(lead, DepthOf(s));
    }
  }

  // Descending. Near the most a single microbatch matters, because that is how the switch from
  // activations to gradients is timed; elsewhere steps change slowly.
  std::vector<uint32_t> LeadsToTry(Search search) const {
    if (options_.lead || cost_.stages.size() < 2) return {options_.lead.value_or(0)};
    uint32_t most = cost_.microbatches - 1;
    for (size_t s = 0; s + 1 < cost_.stages.size(); ++s) most = std::min(most, DepthOf(s));
    const bool fine = search == Search::kFine && size_ <= kLarge;
    const uint32_t near = fine ? 8 : size_ <= kLarge ? 3 : 1, parts = fine ? 8 : 2;
    std::vector<uint32_t> leads;
    for (uint32_t below = 0; below < near && below < most; ++below) leads.push_back(most - below);
    for (uint32_t part = parts - 1; part > 0; --part) {
      const uint32_t lead = most * part / parts;
      if (lead > 0 && lead < leads.back()) leads.push_back(lead);
    }
    leads.push_back(0);
    return leads;
  }

  // The best lead for the depths as they are; it is set. Infinite: none is below `limit`.
  StatusOr<Opinion> FindLead(Search search, absl::Duration limit = absl::InfiniteDuration()) {
    Opinion best;
    for (const uint32_t lead : LeadsToTry(search)) {
      SetLead(lead);
      LH_ASSIGN_OR_RETURN(const Opinion one, Judge(std::min(limit, best.score)));
      if (one.score * kAlike >= best.score) continue;
      best = one;
      lead_ = lead;
    }
    SetLead(lead_);
    return best;
  }

  // All alike first, then each one for itself.
  StatusOr<Opinion> LowerDepths(absl::Duration target) {
    const PipelineCost limited = cost_;
    const auto set_all = [&](uint32_t depth) {
      SetDepths([&](size_t s) { return std::min(depth, limited.stages[s].depth); });
    };
    uint32_t low = 1, high = cost_.microbatches;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      set_all(middle);
      LH_ASSIGN_OR_RETURN(const Opinion one, FindLead(Search::kCoarse, target));
      one.score <= target ? high = middle : low = middle + 1;
    }
    set_all(high);
    LH_ASSIGN_OR_RETURN(Opinion best, FindLead(Search::kFine));
    if (size_ > kLarge) return best;
    for (size_t s = cost_.stages.size(); s-- > 0;) {
      low = 1;
      high = cost_.stages[s].depth;
      while (low < high) {
        cost_.stages[s].depth = (low + high) / 2;
        SetLead(lead_);
        LH_ASSIGN_OR_RETURN(const Opinion one, Judge(target));
        if (one.score <= target) {
          high = cost_.stages[s].depth;
          best = one;
        } else {
          low = cost_.stages[s].depth + 1;
        }
      }
      cost_.stages[s].depth = high;
      SetLead(lead_);
    }
    return best;
  }

  PipelineCost cost_;
  const TuneOptions options_;
  const uint64_t size_;
  uint32_t lead_ = 0;
  Tuning result_;
};

}  // namespace

StatusOr<Tuning> Tune(const PipelineCost& cost, const TuneOptions& options) {
  return Tuner(cost, options).Go();
}

StatusOr<Tuning> TuneWithMargin(const PipelineCost& cost, std::optional<uint32_t> lead) {
  PipelineCost unforeseen = cost;
  for (BoundaryCost& boundary : unforeseen.boundaries) {
    boundary.forward_latency += kUnforeseenDelay;
    boundary.backward_latency += kUnforeseenDelay;
  }
  LH_ASSIGN_OR_RETURN(const Tuning late, Tune(unforeseen, {.depths = true, .lead = lead}));
  for (StageCost& stage : unforeseen.stages) {
    stage.egress_bytes_per_second *= kUnforeseenRate;
    stage.ingress_bytes_per_second *= kUnforeseenRate;
  }
  for (BoundaryCost& boundary : unforeseen.boundaries) {
    boundary.forward_bytes_per_second *= kUnforeseenRate;
    boundary.backward_bytes_per_second *= kUnforeseenRate;
  }
  LH_ASSIGN_OR_RETURN(const Tuning fast, Tune(unforeseen, {.depths = true, .lead = lead}));
  PipelineCost fixed = cost;
  for (size_t s = 0; s < fixed.stages.size(); ++s) {
    fixed.stages[s].depth = std::max(late.depths[s], fast.depths[s]);
  }
  LH_ASSIGN_OR_RETURN(Tuning tuning, Tune(fixed, {.depths = false, .lead = lead}));
  tuning.simulations += late.simulations + fast.simulations;
  return tuning;
}

}  // namespace longhaul::schedule
