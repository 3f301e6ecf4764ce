// Whether depths and the order of data should change while a run trains, by what its stages and
// links were seen to do. Pure.
//
//   window.push_back(SeenIn(spec, assignment, reports));   // of every step
//   LH_ASSIGN_OR_RETURN(auto better, Retune(spec, plan, MedianOf(window)));
#ifndef LONGHAUL_COORDINATOR_PLANNER_RETUNE_H_
#define LONGHAUL_COORDINATOR_PLANNER_RETUNE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

struct SeenCell {
  double forward_seconds = 0, backward_seconds = 0;  // a microbatch
  double optimizer_seconds = 0;                      // a step
};
struct SeenEdge {
  // While tensors arrive, with all headers. nullopt: too few or too small ones came.
  std::optional<double> forward_bits_per_second, backward_bits_per_second;
  std::optional<double> round_trip_seconds;
};
struct Seen {
  std::vector<SeenCell> cells;  // as Assignment::cells
  std::vector<SeenEdge> edges;  // as Assignment::edges
};

// What a step's reports say, one of each cell, in the places of assignment.cells. What cannot be
// (times that are negative, not finite or longer than a day, rates above 10 Tbit/s) counts as not
// known, or as 0.
Seen SeenIn(const RunSpec& spec, const Assignment& assignment,
            std::span<const std::optional<v1::StepReport>> reports);

// Of each value alone, of those that are known. At least one step, all of one plan.
Seen MedianOf(std::span<const Seen> steps);

// A compute time or rate is another one by more than 20 %, or a round trip by that and by more than
// what depths have to spare anyway (schedule::kUnforeseenDelay each way).
bool Differs(const Seen& some, const Seen& others);

// A run of several stages whose depths and order are the plan's to choose and whose rates are
// known.
bool MayRetune(const RunSpec& spec, const Plan& plan);

// The most microbatches that a cell may have in flight: what its memory holds, where that is known.
uint32_t MostDepth(const RunSpec& spec, const CellEstimate& cell);

// `plan` with what was seen, in each of its replicas, and the depths and leads that the simulator
// then chooses within `depth_by_memory`; its `retune_reason` says why. nullopt where these do not
// make a step 5 % shorter: less is not certain of what is measured beside training. Rates that were
// not seen stay those of the plan. kCancelled once `stop` is requested.
StatusOr<std::optional<Plan>> Retune(const RunSpec& spec, const Plan& plan, const Seen& seen,
                                     const std::stop_token& stop = {});

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_RETUNE_H_
