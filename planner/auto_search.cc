#include "planner/auto_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/units.h"

namespace longhaul::coordinator {
namespace {

struct TriedValue {
  AutoOutcome outcome;
  Status refusal;
  bool is_settled = false;  // the outcome counts: the whole plan's, or an exact trial's
  std::optional<Plan> plan;
  std::optional<Plan> trial;  // the trial's plan, in case there is no time for the whole one
};

class ValueSearch {
 public:
  ValueSearch(const AutoSearch& search, const std::stop_token& stop)
      : search_(search), stop_(stop) {}

  StatusOr<Plan> Go() {
    LH_RETURN_IF_ERROR(TryAll());
    while (const std::optional<size_t> next = NextToPlan()) {
      if (IsEnough()) break;
      LH_RETURN_IF_ERROR(PlanWhole(*next));
    }
    if (!FastestStep()) SettleTrials();
    if (!FastestStep()) return NoneCanBe();
    const size_t chosen = Chosen();
    TriedValue& best = tried_[chosen];
    // With exact trials nothing but the chosen value needs a whole plan.
    if (!best.plan && !(best.trial && IsEnough())) LH_RETURN_IF_ERROR(PlanWhole(chosen));
    LH_RETURN_IF_ERROR(best.refusal);
    Plan plan = *std::move(best.plan ? best.plan : best.trial);
    std::vector<AutoOutcome> outcomes;
    for (TriedValue& one : tried_) outcomes.push_back(std::move(one.outcome));
    search_.say(outcomes, chosen, &plan);
    return plan;
  }

 private:
  bool TrialsAreExact() const { return search_.most_gain_over_trial == 0; }

  Status TryAll() {
    for (size_t i = 0; i < search_.values.size(); ++i) {
      tried_.emplace_back().outcome.value = search_.values[i];
      if (search_.values.size() == 1) break;  // its plan says what is wrong with it
      PlanRequest request = search_.request_of(i);
      if (!TrialsAreExact()) request.effort = Effort::kTrial;
      const bool is_whole = TrialsAreExact() && !request.with_codec_table;
      request.with_codec_table = false;
      LH_RETURN_IF_ERROR(Try(request, TrialsAreExact(), is_whole, &tried_.back()));
      if (search_.takes_more_memory && !tried_.back().refusal.ok()) break;
      if (i + 1 < search_.values.size() && IsEnough()) break;
    }
    return absl::OkStatus();
  }

  // A plan is known, and the time for more is over.
  bool IsEnough() const {
    const bool any =
        std::ranges::any_of(tried_, [](const TriedValue& one) { return one.plan || one.trial; });
    return any && search_.limit.IsOver();
  }

  // There was no time for a whole plan, so those of trials count.
  void SettleTrials() {
    for (TriedValue& one : tried_) one.is_settled = one.trial.has_value();
  }

  Status PlanWhole(size_t value) {
    PlanRequest request = search_.request_of(value);
    if (!TrialsAreExact()) request.effort = Effort::kWhole;
    return Try(request, /*settles=*/true, /*is_whole=*/true, &tried_[value]);
  }

  Status Try(const PlanRequest& request, bool settles, bool is_whole, TriedValue* one) {
    StatusOr<Plan> plan = MakePlanInSearch(request, stop_);
    if (absl::IsFailedPrecondition(plan.status())) {
      one->refusal = plan.status();
      one->outcome.refused = Message(plan.status());
      return absl::OkStatus();
    }
    LH_RETURN_IF_ERROR(plan.status());
    one->is_settled = settles;
    one->outcome.step_seconds = plan->prediction.step_seconds;
    for (const Cell& cell : plan->assignment.cells) {
      one->outcome.memory_bytes = std::max(one->outcome.memory_bytes, cell.memory_bytes);
    }
    if (is_whole) {
      one->plan = *std::move(plan);
    } else if (search_.limit.is_set()) {
      one->trial = *std::move(plan);
    }
    return absl::OkStatus();
  }

  // The shortest step that is settled.
  std::optional<double> FastestStep() const {
    std::optional<double> fastest;
    for (const TriedValue& one : tried_) {
      if (!one.is_settled || !one.refusal.ok()) continue;
      fastest = std::min(fastest.value_or(one.outcome.step_seconds), one.outcome.step_seconds);
    }
    return fastest;
  }

  // The value with the fastest trial among those whose whole plan may yet be chosen.
  std::optional<size_t> NextToPlan() const {
    const std::optional<double> fastest = FastestStep();
    std::optional<size_t> next;
    for (size_t i = 0; i < tried_.size(); ++i) {
      const TriedValue& one = tried_[i];
      if (one.is_settled || !one.refusal.ok()) continue;
      const double step = one.outcome.step_seconds;
      if (fastest && step * (1 - search_.most_gain_over_trial) > WithinTolerance(*fastest)) {
        continue;
      }
      if (!next || step < tried_[*next].outcome.step_seconds) next = i;
    }
    return next;
  }

  size_t Chosen() const {
    const double most = WithinTolerance(*FastestStep());
    const auto chosen = std::ranges::find_if(tried_, [&](const TriedValue& one) {
      return one.is_settled && one.refusal.ok() && one.outcome.step_seconds <= most;
    });
    return static_cast<size_t>(chosen - tried_.begin());
  }

  double WithinTolerance(double fastest) const { return fastest * (1 + search_.tolerance); }

  Status NoneCanBe() const {
    if (search_.takes_more_memory) return tried_.front().refusal;
    std::string reasons;
    for (const TriedValue& one : tried_) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", one.outcome.value,
                             one.outcome.refused);
    }
    return FailedPrecondition("{}: {}", search_.none,
                              reasons.empty() ? "there are too few workers" : reasons);
  }

  const AutoSearch& search_;
  const std::stop_token& stop_;
  std::vector<TriedValue> tried_;
};

}  // namespace

StatusOr<Plan> PlanBestValue(const AutoSearch& search, const std::stop_token& stop) {
  return ValueSearch(search, stop).Go();
}

std::string OthersInWords(const std::vector<AutoOutcome>& tried, size_t chosen, bool with_reasons) {
  std::string others;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (i == chosen) continue;
    const AutoOutcome& one = tried[i];
    others += fmt::format("{}{} ", others.empty() ? "" : ", ", one.value);
    if (one.refused.empty()) {
      others += "would take " + FormatSeconds(one.step_seconds);
    } else {
      others += with_reasons ? fmt::format("cannot be ({})", one.refused) : "cannot";
    }
  }
  return others;
}

}  // namespace longhaul::coordinator
