// Decides whether depths (microbatches in flight) and the order of data should change while a run
// trains, by the times and rates that its steps report. Pure.
//
//   window.push_back(SeenIn(spec, assignment, reports));   // of every step
//   LH_ASSIGN_OR_RETURN(auto better, Retune(spec, plan, MedianOf(window)));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/schedule/search_limit.h"

namespace longhaul::coordinator {

struct SeenCell {
  double forward_seconds = 0, backward_seconds = 0;  // a microbatch
  double optimizer_seconds = 0;                      // a step
};
struct SeenEdge {
  // Rates while tensors arrive, headers included. nullopt: too few bytes arrived.
  std::optional<double> forward_bits_per_second, backward_bits_per_second;
  std::optional<double> round_trip_seconds;
};
// The times and rates of one step, or medians over several steps.
struct Seen {
  std::vector<SeenCell> cells;  // in the order of Assignment::cells
  std::vector<SeenEdge> edges;  // in the order of Assignment::edges
};

// Returns the times and rates in the reports of one step. There must be a report for each cell (no
// nullopt), in the order of assignment.cells. Impossible times (negative, not finite or longer than
// a day) count as 0, and impossible rates (above 10 Tbit/s) as unknown. Only edges of kind
// kActivations get values.
Seen SeenIn(const RunSpec& spec, const Assignment& assignment,
            std::span<const std::optional<v1::StepReport>> reports);

// Returns the median of each value over the steps in which it is known. `steps` must have at least
// one step; all must be of one plan.
Seen MedianOf(std::span<const Seen> steps);

// True if any value that both have differs: a cell's forward plus backward time, or a rate, by more
// than 20 %; or a round trip by more than 20 % and by more than twice schedule::kUnforeseenDelay
// (depths have a margin for this delay). Both must be of one plan.
bool Differs(const Seen& some, const Seen& others);

// True for a run of several stages whose depths are chosen by the plan and may change between
// steps, and whose rates are known.
bool MayRetune(const RunSpec& spec, const Plan& plan);

// Maximum number of microbatches in flight that a cell's memory holds; all of a step if that is
// unknown.
uint32_t MostDepth(const RunSpec& spec, const CellEstimate& cell);

// Returns `plan` with the times and rates in `seen`, and with the depths and activation leads
// (Setting) that the simulator then chooses within CellEstimate::depth_by_memory. Rates that are
// not in `seen` stay as in `plan`. Plan::retune_reason says why. nullopt: the step would be less
// than 5 % shorter; measurements during training are not more exact. Call it only if
// MayRetune(spec, plan). kCancelled once `stop` is requested. Once `limit` is over, the search ends
// with the best so far, and Prediction::cut_short says so.
StatusOr<std::optional<Plan>> Retune(const RunSpec& spec, const Plan& plan, const Seen& seen,
                                     const std::stop_token& stop = {},
                                     const schedule::SearchLimit& limit = {});

}  // namespace longhaul::coordinator
