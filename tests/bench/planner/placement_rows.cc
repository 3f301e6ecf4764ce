#include "tests/bench/planner/placement_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "planner/place_workers.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "tests/bench/planner/exchange_rings.h"
#include "tests/support/placement_candidates.h"

namespace longhaul::bench {
namespace {

using coordinator::PlacedReplicas;
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

// This process's time: a search has one thread, and others may use the machine.
double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// The same workers as so many replicas, which exchange in 4 bits.
PlanRequest AsReplicas(PlanRequest request, uint32_t replicas, uint32_t stages) {
  request.spec.replicas = {.count = replicas};
  request.spec.replicas.gradients.form = replicas::GradientForm::kSdp4bit;
  request.spec.replicas.parameters = replicas::ParameterForm::kDifference4;
  request.spec.pipeline.stages = stages;
  request.candidates_for = replicas * stages;
  return request;
}

// A step with each number of replicas, and what it takes to choose one.
void PrintChoice(const std::string& name, PlanRequest request) {
  request = AsReplicas(std::move(request), 1, 1);
  request.spec.replicas.count_auto = true;
  request.spec.pipeline.stages.reset();
  request.spec.train.microbatches = 128;
  request.candidates_for = static_cast<uint32_t>(request.workers.size());
  const double begin = CpuSeconds();
  const Plan plan = Need(MakePlan(request));
  const double took = CpuSeconds() - begin;
  for (const ReplicasPrediction& one : plan.prediction.replicas) {
    const bool is_chosen = one.replicas * one.stages == plan.assignment.cells.size() &&
                           plan.assignment.cells.back().id.replica + 1 == one.replicas;
    fmt::print("{},{},{},{},{},{},,{},\n", name, request.workers.size(), one.replicas, one.stages,
               is_chosen ? "chosen" : "not chosen",
               one.refused.empty() ? fmt::format("{:.4f}", one.step_seconds) : "",
               is_chosen ? fmt::format("{:.2f}", took) : "");
  }
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
    const double begin = CpuSeconds();
    const Placement placed = Need(Place(problem_, options));
    const double took = CpuSeconds() - begin;
    step_ = placed.step_seconds;
    Row(what, step_, took,
        fmt::format("{} moves in {} descents{}", placed.moves, placed.descents,
                    placed.is_exact ? ", exact" : ""));
    return took;
  }
  void Order(const std::string& what, const std::vector<uint32_t>& workers) {
    Row(what, StepOf(*WithBalancedLayers(problem_, workers)), 0, "");
  }
  // So many, and then as many as take `times` as long as placement did.
  void Restarts(const PlacementFlags& flags, double took) {
    const double restarts_took = Search(fmt::format("{} random restarts", flags.restarts),
                                        {.seed = 2, .random_restarts = flags.restarts});
    const double as_many = flags.restarts * flags.times * took / restarts_took;
    if (as_many <= flags.restarts) return;
    Search(fmt::format("random restarts for {} times as long", flags.times),
           {.seed = 3, .random_restarts = static_cast<uint32_t>(as_many)});
  }

 private:
  double StepOf(const PlacedReplicas& replicas) { return Need(SimulatedStep(problem_, replicas)); }
  // As the coordinator asks for it: with depths, order of data and explanation.
  void Whole() {
    const double begin = CpuSeconds();
    const Plan plan = Need(MakePlan(request_));
    Row("the whole plan", plan.prediction.step_seconds, CpuSeconds() - begin, "");
    if (problem_.replicas < 4) return;  // of fewer there is one ring
    ExchangeOf("exchange", plan);
    PlanRequest by_name = request_;
    by_name.spec.pipeline.placement = PlacementKind::kNames;
    ExchangeOf("exchange in the order of names", Need(MakePlan(by_name)));
  }
  void ExchangeOf(const std::string& what, const Plan& plan) {
    const Exchanges exchanges = Need(ExchangesOf(plan, request_.spec));
    fmt::print("{},{},{},{},{},{:.4f},,,{:.4f} s with parameters along the best ring\n", name_,
               problem_.workers.size(), problem_.replicas, problem_.stages, what,
               exchanges.straight, exchanges.ring);
  }
  void Row(const std::string& what, double step, double took, const std::string& note) {
    fmt::print("{},{},{},{},{},{:.4f},{:.2f},{:.2f},{}\n", name_, problem_.workers.size(),
               problem_.replicas, problem_.stages, what, step, named_ / step, took, note);
    std::fflush(stdout);
  }

  const std::string name_;
  const PlanRequest request_;
  const PlacementProblem problem_;
  double named_ = 0, step_ = 0;
};

// The workers of these regions, one region behind the other.
std::vector<uint32_t> OfRegions(const PlanRequest& request,
                                std::initializer_list<std::string_view> regions) {
  std::vector<uint32_t> workers;
  for (const std::string_view region : regions) {
    for (const TopologyRegion& one : request.spec.topology->regions) {
      if (one.name != region) continue;
      for (uint32_t w = 0; w < request.workers.size(); ++w) {
        if (std::ranges::count(one.workers, request.workers[w].name) > 0) workers.push_back(w);
      }
    }
  }
  return workers;
}

// Replicas beside each other: of workers in a row each region has the same stages of all replicas.
std::vector<uint32_t> StageByStage(const std::vector<uint32_t>& row, uint32_t replicas) {
  std::vector<uint32_t> workers;
  for (uint32_t r = 0; r < replicas; ++r) {
    for (size_t at = r; at < row.size(); at += replicas) workers.push_back(row[at]);
  }
  return workers;
}

}  // namespace

int PrintPlacements(const PlacementFlags& flags) {
  fmt::print(
      "case,workers,replicas,stages,order,step seconds,times faster than names,seconds to find,\n");
  const std::string run_file = flags.folder + "/four_regions.yaml";
  const PlanRequest regions = coordinator::TopologyRequest(run_file);
  const std::vector<uint32_t> in_a_row = OfRegions(regions, {"north", "west", "east", "south"});
  const PlanRequest matrix =
      coordinator::MatrixRequest(flags.folder + "/regions_64.csv", run_file, flags.stages);
  if (flags.replicas == 0) {
    PrintChoice("four regions", regions);
    PrintChoice("ten regions", matrix);
    return 0;
  }
  if (flags.replicas == 1) {
    Case four("four regions", regions);
    four.Print(flags);
    four.Order("by hand: north; west; east; south", in_a_row);
    Case ten("ten regions", matrix);
    ten.Restarts(flags, ten.Print(flags));
    return 0;
  }
  const uint32_t in_four = static_cast<uint32_t>(regions.workers.size()) / flags.replicas;
  Case four("four regions", AsReplicas(regions, flags.replicas, in_four));
  const double took = four.Print(flags);
  four.Order("by hand: each region has stages of all replicas",
             StageByStage(in_a_row, flags.replicas));
  four.Restarts(flags, took);
  const uint32_t in_ten = static_cast<uint32_t>(matrix.workers.size()) / flags.replicas;
  Case ten("ten regions", AsReplicas(matrix, flags.replicas, in_ten));
  ten.Restarts(flags, ten.Print(flags));
  return 0;
}

}  // namespace longhaul::bench
