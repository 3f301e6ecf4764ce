#include "run/schedule/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "run/plan/chain.h"
#include "run/schedule/policy.h"
#include "run/schedule/simulator.h"
#include "run/schedule/steps_in_a_row.h"

namespace longhaul::schedule {
namespace {

// Two steps that differ by less count as equal: the simulator's own error is larger.
constexpr double kAlike = 1.0005;
// Work of one simulation (WorkOf) above which a search is coarse.
constexpr uint64_t kLarge = 10'000;

struct Opinion {
  absl::Duration step = absl::InfiniteDuration();   // shared interfaces lose nothing
  absl::Duration score = absl::InfiniteDuration();  // the mean with those that do
};

class Tuner {
 public:
  Tuner(const PipelineCost& cost, const TuneOptions& options)
      : cost_(cost), options_(options), work_(WorkOf(cost)) {}

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
      const absl::Duration target = std::max(unlimited.score * (1 + kDepthTolerance), most.score);
      LH_ASSIGN_OR_RETURN(best, LowerDepths(target, most));
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
    result_.cut_short = CutShort();
    options_.limit.Count(result_.simulations);
    return std::move(result_);
  }

 private:
  enum class Search : uint8_t { kFine, kCoarse };

  StatusOr<absl::Duration> Step(double shared_efficiency) {
    ++result_.simulations;
    cost_.shared_efficiency = shared_efficiency;
    LH_ASSIGN_OR_RETURN(const Simulation simulation, Simulate(cost_, options_.stop));
    return simulation.step;
  }

  // Infinite where the score is above `limit`. A first simulation above it saves the second.
  StatusOr<Opinion> Judge(absl::Duration limit) {
    LH_ASSIGN_OR_RETURN(const absl::Duration step, Step(1));
    if (step > limit) return Opinion{};
    LH_ASSIGN_OR_RETURN(const absl::Duration pessimistic, Step(kPessimisticEfficiency));
    const absl::Duration score = (step + pessimistic) / 2;
    return score > limit ? Opinion{} : Opinion{step, score};
  }

  // Whether the budget, or the time, is too small for another opinion. The first opinions are taken
  // whatever they cost: without them there is no choice at all.
  bool IsSpent() {
    if (options_.limit.IsOver()) return true;
    if ((result_.simulations + 2) * work_ <= options_.most_work) return false;
    spent_ = true;
    return true;
  }

  std::string CutShort() const {
    const size_t stages = cost_.stages.size();
    if (options_.limit.HasEndedSearches()) return "";  // the caller says it of all searches
    if (spent_) {
      return fmt::format(
          "depths of {} stages are the best of {} simulations, because a search has a budget of {} "
          "(slices times stages squared) and each of these took {}",
          stages, result_.simulations, options_.most_work, work_);
    }
    if (work_ <= kLarge || stages < 2) return "";
    return fmt::format(
        "depths of {} stages were searched coarsely, because a simulation of them costs {} "
        "(slices times stages squared) and a search in every detail is for up to {}",
        stages, work_, kLarge);
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
      cost_.stages[s].activation_lead = chain::IsFirst(static_cast<uint32_t>(s)) ? 0 : lead;
      lead = std::min(lead, DepthOf(s));
    }
  }

  // Descending. Near the largest lead a single microbatch matters, because it times the switch from
  // activations to gradients; elsewhere the step changes slowly with the lead.
  std::vector<uint32_t> LeadsToTry(Search search) const {
    if (options_.lead || cost_.stages.size() < 2) return {options_.lead.value_or(0)};
    uint32_t most = cost_.microbatches - 1;
    const auto stages = static_cast<uint32_t>(cost_.stages.size());
    for (uint32_t b = 0; b < chain::Boundaries(stages); ++b) {
      most = std::min(most, DepthOf(chain::UpperStage(b)));
    }
    const bool fine = search == Search::kFine && work_ <= kLarge;
    const uint32_t near = fine ? 8 : work_ <= kLarge ? 3 : 1, parts = fine ? 8 : 2;
    std::vector<uint32_t> leads;
    for (uint32_t below = 0; below < near && below < most; ++below) leads.push_back(most - below);
    for (uint32_t part = parts - 1; part > 0; --part) {
      const uint32_t lead = most * part / parts;
      if (lead > 0 && lead < leads.back()) leads.push_back(lead);
    }
    leads.push_back(0);
    return leads;
  }

  // Finds and sets the best lead for the depths as they are. Infinite: none is below `limit`. The
  // first lead is tried whatever it costs.
  StatusOr<Opinion> FindLead(Search search, absl::Duration limit = absl::InfiniteDuration()) {
    Opinion best;
    bool first = true;
    for (const uint32_t lead : LeadsToTry(search)) {
      // No lead is one of the two choices that are tried even if the time is over.
      const bool is_last = lead == 0 && options_.limit.HasEndedSearches();
      if (!std::exchange(first, false) && !is_last && IsSpent()) continue;
      SetLead(lead);
      LH_ASSIGN_OR_RETURN(const Opinion one, Judge(std::min(limit, best.score)));
      if (one.score * kAlike >= best.score) continue;
      best = one;
      lead_ = lead;
    }
    SetLead(lead_);
    return best;
  }

  // Lowers the depths of all stages alike first, then of each stage by itself. `best` is the
  // opinion on the depths as they are.
  StatusOr<Opinion> LowerDepths(absl::Duration target, Opinion best) {
    const PipelineCost limited = cost_;
    const auto set_all = [&](uint32_t depth) {
      SetDepths([&](size_t s) { return std::min(depth, limited.stages[s].depth); });
    };
    uint32_t low = 1, high = cost_.microbatches, best_lead = lead_;
    while (low < high && !IsSpent()) {
      const uint32_t middle = (low + high) / 2;
      set_all(middle);
      LH_ASSIGN_OR_RETURN(const Opinion one, FindLead(Search::kCoarse, target));
      if (one.score <= target) {
        high = middle;
        best = one;
        best_lead = lead_;
      } else {
        low = middle + 1;
      }
    }
    set_all(high);
    if (IsSpent()) {
      lead_ = best_lead;
      SetLead(lead_);
      return best;
    }
    LH_ASSIGN_OR_RETURN(best, FindLead(Search::kFine));
    if (work_ > kLarge) return best;
    for (size_t s = cost_.stages.size(); s-- > 0;) {
      low = 1;
      high = cost_.stages[s].depth;
      while (low < high && !IsSpent()) {
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
  const uint64_t work_;  // of one simulation
  uint32_t lead_ = 0;
  bool spent_ = false;
  Tuning result_;
};

}  // namespace

uint64_t WorkOf(const PipelineCost& cost) {
  const uint64_t of_a_step = uint64_t{cost.AllSlices()} * cost.stages.size() * cost.stages.size();
  return TraitsOf(cost.schedule).overlaps_steps ? (2 * kStepsToFill + kCountedSteps) * of_a_step
                                                : of_a_step;
}

StatusOr<Tuning> Tune(const PipelineCost& cost, const TuneOptions& options) {
  return Tuner(cost, options).Go();
}

Unforeseen UnforeseenOf(const PipelineCost& cost) {
  Unforeseen all{.late = cost, .late_and_fast = {}};
  for (BoundaryCost& boundary : all.late.boundaries) {
    boundary.forward.latency += kUnforeseenDelay;
    boundary.backward.latency += kUnforeseenDelay;
  }
  all.late_and_fast = all.late;
  for (StageCost& stage : all.late_and_fast.stages) {
    stage.egress_bytes_per_second *= kUnforeseenRate;
    stage.ingress_bytes_per_second *= kUnforeseenRate;
  }
  for (BoundaryCost& boundary : all.late_and_fast.boundaries) {
    boundary.forward.bytes_per_second *= kUnforeseenRate;
    boundary.backward.bytes_per_second *= kUnforeseenRate;
  }
  return all;
}

StatusOr<Tuning> TuneWithMargin(const PipelineCost& cost, const TuneOptions& options) {
  const Unforeseen unforeseen = UnforeseenOf(cost);
  LH_ASSIGN_OR_RETURN(const Tuning late, Tune(unforeseen.late, options));
  LH_ASSIGN_OR_RETURN(const Tuning fast, Tune(unforeseen.late_and_fast, options));
  PipelineCost fixed = cost;
  for (size_t s = 0; s < fixed.stages.size(); ++s) {
    fixed.stages[s].depth = std::max(late.depths[s], fast.depths[s]);
  }
  TuneOptions of_leads = options;
  of_leads.depths = false;
  LH_ASSIGN_OR_RETURN(Tuning tuning, Tune(fixed, of_leads));
  tuning.simulations += late.simulations + fast.simulations;
  for (const Tuning* search : {&fast, &late}) {
    if (!search->cut_short.empty()) tuning.cut_short = search->cut_short;
  }
  return tuning;
}

}  // namespace longhaul::schedule
