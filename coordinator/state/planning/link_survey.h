// Chooses the links between candidates to measure for a plan, in this order: round trips of all
// pairs, which are cheap; goodput of the most informative pairs (planner/link_estimates.h); then
// goodput of unmeasured pairs that a plan would use, until a plan uses only measured pairs. If
// there are few candidates, all their pairs are measured at once.
//
//   while (!(edges = survey.Next(candidates)).empty()) ...      // measure them
//   plan = ...;
//   if (!(edges = survey.NotMeasured(plan)).empty()) ...        // measure them, and plan anew
//
// The planner prefers links whose estimates are too good. So the last plan may use measured links
// only: the survey is then settled.
//
// Pure data; not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "coordinator/state/books/probe_rounds.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Up to this many candidates measure the goodput of every pair.
inline constexpr size_t kFewCandidates = 4;
// Maximum number of plans made for one run before the last one. Links of each are measured before
// the next.
inline constexpr uint32_t kMostSurveyedPlans = 4;

class LinkSurvey {
 public:
  // Returns links to measure now, given the known links of the candidates. Empty: a plan may be
  // made.
  std::vector<ProbeEdge> Next(const std::vector<CandidateWorker>& candidates);
  // Returns edges of a plan whose links this survey has not requested; empty: the plan is good, or
  // the survey is settled. It is settled after kMostSurveyedPlans.
  std::vector<ProbeEdge> NotMeasured(const Assignment& assignment);
  // True: the next plan is the last one, and may use only requested links.
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
