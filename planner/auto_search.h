// One search for every key of the run file that is `auto` and that whole plans must decide: each
// value is planned, and the first of those that are nearly as fast as the fastest is taken. Pure.
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

namespace longhaul::coordinator {

// What planning the run with one value gave.
struct AutoOutcome {
  std::string value;  // in words: "4 slices"
  double step_seconds = 0;
  uint64_t memory_bytes = 0;  // of the cell that takes most
  std::string refused;        // why the value cannot be; empty: it can
};

struct AutoSearch {
  std::vector<std::string> values;  // in words; the preferred one first
  // The request with the value at that place.
  std::function<PlanRequest(size_t value)> request_of;
  // A step that is longer by this share than the shortest is as good.
  double tolerance = 0;
  // 0: each value gets a plan with all effort. Else each gets a trial (Effort::kTrial), the whole
  // plan of a value may be faster than its trial by this share, and the values that may yet be
  // chosen are planned whole, best first, until no other could be.
  double most_gain_over_trial = 0;
  // Each value takes more memory than the one before it. So none is tried after a refusal, and a
  // refusal of the first value is the run's own.
  bool takes_more_memory = false;
  std::string none;  // begins the error where every value is refused; reasons follow
  // Adds to the plan what was chosen and what the others would do.
  std::function<void(const std::vector<AutoOutcome>& tried, size_t chosen, Plan* plan)> say;
};

// kFailedPrecondition with all reasons where no value can be.
StatusOr<Plan> PlanBestValue(const AutoSearch& search, const std::stop_token& stop);

// "2 slices would take 3 s, 4 slices cannot be (a reason)": all outcomes but the chosen one. Empty:
// there is no other. Without reasons: "4 slices cannot".
std::string OthersInWords(const std::vector<AutoOutcome>& tried, size_t chosen,
                          bool with_reasons = true);

}  // namespace longhaul::coordinator
