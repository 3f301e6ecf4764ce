// What audits of a run cost, and how soon they find a worker that lies (audit.share). What is
// audited is the work of one stage between two saved states, a window. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The probability with which AuditCost::named_steps names the worker.
inline constexpr double kNamedWith = 0.95;

struct AuditCost {
  uint64_t window_steps = 0;  // steps from one saved state to the next
  // Steps after which a worker that lies in each of them is named with kNamedWith, from the first
  // lie. A lie in a single step is found with the probability audit.share.
  uint64_t named_steps = 0;
  // Share of its time in which one spare computes audits, if it is as fast as the stages are on
  // average. Above 1: so many spares are needed.
  double spare_share = 0;
  // What the stages send to spares, as a share of what they send to each other.
  double traffic_share = 0;
  // Host memory of the stage that keeps most, for what it has received in a window.
  uint64_t recorded_bytes = 0;
};

// `plan` must have its prediction and the steps between copies. All zero without audits.
AuditCost AuditCostOf(const RunSpec& spec, const Plan& plan);
// Returns sentences about it for the plan's paragraph, with a space before them; "": no audits.
std::string AuditText(const RunSpec& spec, const Plan& plan);

}  // namespace longhaul::coordinator
