#include "tests/bench/coordinator/placement_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"
#include "coordinator/planner/place_workers.h"
#include "coordinator/planner/placement.h"
#include "coordinator/planner/planner.h"
#include "tests/support/placement_candidates.h"

namespace longhaul::bench {
namespace {

using coordinator::PlacedChain;
using coordinator::Placement;
using coordinator::PlacementOptions;
using coordinator::PlacementProblem;
using coordinator::PlanRequest;

template <class T>
T Need(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  fmt::print(stderr, "longhaul-planner-bench: {}\n", Message(value.status()));
  std::exit(1);
}

class Case {
 public:
  Case(std::string name, const PlanRequest& request)
      : name_(std::move(name)), request_(request), problem_(Need(ProblemOf(request))) {}

  // Gives the seconds that the search took.
  double Print(const PlacementFlags& flags) {
    named_ = StepOf(*NameOrder(problem_));
    Row("order of names", named_, 0, "");
    const double took = Search("placement", {});
    Whole();
    double best = step_;
    for (uint32_t seed = 2; seed < 2 + flags.seeds; ++seed) {
      PlacementOptions longer{.seed = seed};
      longer.most_moves *= 10;
      longer.most_work *= 10;
      best = std::min(best, Need(Place(problem_, longer)).step_seconds);
    }
    Row(fmt::format("best of {} searches with ten times the budget", flags.seeds), best, 0, "");
    return took;
  }
  double Search(const std::string& what, const PlacementOptions& options) {
    const absl::Time begin = absl::Now();
    const Placement placed = Need(Place(problem_, options));
    const double took = absl::ToDoubleSeconds(absl::Now() - begin);
    step_ = placed.step_seconds;
    Row(what, step_, took,
        fmt::format("{} moves in {} descents{}", placed.moves, placed.descents,
                    placed.is_exact ? ", exact" : ""));
    return took;
  }
  void Chain(const std::string& what, std::vector<uint32_t> workers) {
    Row(what, StepOf(*WithBalancedLayers(problem_, std::move(workers))), 0, "");
  }

 private:
  double StepOf(const PlacedChain& chain) { return Need(SimulatedStep(problem_, chain)); }
  // As the coordinator asks for it: with depths, order of data and explanation.
  void Whole() {
    const absl::Time begin = absl::Now();
    const Plan plan = Need(MakePlan(request_));
    Row("the whole plan", plan.prediction.step_seconds, absl::ToDoubleSeconds(absl::Now() - begin),
        "");
  }
  void Row(const std::string& what, double step, double took, const std::string& note) {
    fmt::print("{},{},{},{},{:.4f},{:.2f},{:.2f},{}\n", name_, problem_.workers.size(),
               problem_.stages, what, step, named_ / step, took, note);
    std::fflush(stdout);
  }

  const std::string name_;
  const PlanRequest request_;
  const PlacementProblem problem_;
  double named_ = 0, step_ = 0;
};

}  // namespace

int PrintPlacements(const PlacementFlags& flags) {
  fmt::print("case,workers,stages,order,step seconds,times faster than names,seconds to find,\n");
  const std::string run_file = flags.folder + "/four_regions.yaml";
  const PlanRequest regions = coordinator::TopologyRequest(run_file);
  Case four("four regions", regions);
  four.Print(flags);
  std::vector<uint32_t> by_hand;
  for (const char* region : {"north", "west", "east", "south"}) {
    for (const TopologyRegion& one : regions.spec.topology->regions) {
      if (one.name != region) continue;
      for (uint32_t w = 0; w < regions.workers.size(); ++w) {
        if (std::ranges::count(one.workers, regions.workers[w].name) > 0) by_hand.push_back(w);
      }
    }
  }
  four.Chain("by hand: north; west; east; south", by_hand);

  Case ten("ten regions",
           coordinator::MatrixRequest(flags.folder + "/regions_64.csv", run_file, flags.stages));
  const double took = ten.Print(flags);
  const double restarts_took = ten.Search(fmt::format("{} random restarts", flags.restarts),
                                          {.seed = 2, .random_restarts = flags.restarts});
  const double as_many = flags.restarts * flags.times * took / restarts_took;
  if (as_many > flags.restarts) {
    ten.Search(fmt::format("random restarts for {} times as long", flags.times),
               {.seed = 3, .random_restarts = static_cast<uint32_t>(as_many)});
  }
  return 0;
}

}  // namespace longhaul::bench
