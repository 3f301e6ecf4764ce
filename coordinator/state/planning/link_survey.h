// What a plan that chooses among candidates wants to know of the links between them, in the order
// in which it is measured: round trips of all pairs, which are cheap; goodput of the pairs that
// tell the most (planner/link_estimates.h); then of those that a plan would use and nobody has
// measured, until a plan uses none of these. Few candidates measure all their pairs at once.
//
//   while (!(edges = survey.Next(candidates)).empty()) ...      // measure them
//   plan = ...;
//   if (!(edges = survey.NotMeasured(plan)).empty()) ...        // measure them, and plan anew
//
// A plan likes guesses that are too good, so one that is not followed by another is to use none:
// then the survey is settled.
//
// Pure data; not thread-safe.
#ifndef LONGHAUL_COORDINATOR_STATE_PLANNING_LINK_SURVEY_H_
#define LONGHAUL_COORDINATOR_STATE_PLANNING_LINK_SURVEY_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "coordinator/planner/planner.h"
#include "coordinator/state/books/probe_rounds.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// So many candidates measure the goodput of every pair.
inline constexpr size_t kFewCandidates = 4;
// Plans that are made for one run, each after links of the one before were measured, before the
// last.
inline constexpr uint32_t kMostSurveyedPlans = 4;

class LinkSurvey {
 public:
  // Of candidates with what is known of their links; empty: a plan may be made.
  std::vector<ProbeEdge> Next(const std::vector<CandidateWorker>& candidates);
  // Edges of a plan whose links this survey has not asked for; empty: the plan is good, or as many
  // again did not do without guesses. After kMostSurveyedPlans it is settled.
  std::vector<ProbeEdge> NotMeasured(const Assignment& assignment);
  // The next plan is the last one, and is to use nothing but what was asked for.
  bool IsSettled() const { return is_settled_; }
  bool HasAsked(const WorkerId& one, const WorkerId& other) const {
    return asked_.contains(Pair(one, other));
  }
  void Fail(const WorkerId& one, const WorkerId& other) { failed_.insert(Pair(one, other)); }
  bool HasFailed(const WorkerId& one, const WorkerId& other) const {
    return failed_.contains(Pair(one, other));
  }
  bool HasBegun() const { return phase_ != Phase::kBegin; }

 private:
  enum class Phase : uint8_t { kBegin, kRoundTrips, kGoodput };

  static std::pair<WorkerId, WorkerId> Pair(const WorkerId& one, const WorkerId& other) {
    return one < other ? std::pair(one, other) : std::pair(other, one);
  }
  void Add(const WorkerId& from, const WorkerId& to, EdgeKind kind, std::vector<ProbeEdge>* edges);

  Phase phase_ = Phase::kBegin;
  std::set<std::pair<WorkerId, WorkerId>> asked_;   // for goodput
  std::set<std::pair<WorkerId, WorkerId>> failed_;  // could not be measured
  uint32_t plans_ = 0;
  bool is_settled_ = false;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_PLANNING_LINK_SURVEY_H_
