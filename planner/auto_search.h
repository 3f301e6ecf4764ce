// Searches the value of a key of the run file that is `auto` and that needs a plan for each value:
// plans the run with each value, and takes the first of the nearly fastest values. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"
#include "run/schedule/search_limit.h"

namespace longhaul::coordinator {

// The result of planning the run with one value.
struct AutoOutcome {
  std::string value;          // for people: "4 slices"
  double step_seconds = 0;    // predicted; 0: the value is impossible
  uint64_t memory_bytes = 0;  // device memory of the stage that needs the most; 0: impossible
  std::string refused;        // why the value is impossible; empty: it is possible
};

// One key's search. `request_of` and `say` must not be empty; PlanBestValue calls them on its
// caller's thread.
struct AutoSearch {
  std::vector<std::string> values;  // for people; the preferred one first
  // Returns the request with the value at this index of `values`.
  std::function<PlanRequest(size_t value)> request_of;
  // A step that is longer than the shortest by at most this share counts as equal.
  double tolerance = 0;
  // 0: each value gets a plan with full effort. Above 0: each value first gets a trial
  // (Effort::kTrial), and a plan with full effort may be faster than its trial by this share. Then
  // values are planned with full effort, the fastest trial first, until no other can win.
  double most_gain_over_trial = 0;
  // True: each value takes more memory than the one before it. Then values after a refused one are
  // not tried. If the first value is refused, its refusal is the search's error.
  bool takes_more_memory = false;
  // Once it is over and a plan is known, no more values are tried, and the fastest plan of a trial
  // is taken if none has full effort.
  schedule::SearchLimit limit = {};
  std::string none;  // beginning of the error if every value is refused; reasons follow
  // Adds the choice and the results of all tried values to the plan. `tried` is in the order of
  // `values`, and may be shorter (takes_more_memory, limit). `chosen` is an index of `tried`.
  // Called once, with the final plan.
  std::function<void(const std::vector<AutoOutcome>& tried, size_t chosen, Plan* plan)> say;
};

// Returns the plan of the chosen value. kFailedPrecondition: no value is possible; the message has
// the reasons of all (but see takes_more_memory). kCancelled: `stop` was requested. Any other error
// of MakePlan for one value ends the search and is returned.
StatusOr<Plan> PlanBestValue(const AutoSearch& search, const std::stop_token& stop);

// Returns "2 slices would take 3 s, 4 slices cannot be (a reason)": all outcomes except the chosen
// one. Empty: there is no other. Without reasons: "4 slices cannot".
std::string OthersInWords(const std::vector<AutoOutcome>& tried, size_t chosen,
                          bool with_reasons = true);

}  // namespace longhaul::coordinator
