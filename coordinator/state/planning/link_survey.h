// Chooses the links to measure for a plan that takes its workers from candidates. The survey
// first measures the round trips of all pairs, which is cheap. It then measures the goodput of the
// most informative pairs (planner/link_estimates.h), and of unmeasured pairs that a plan would use,
// until a plan uses only measured pairs. With few candidates, it measures the goodput of all pairs.
//
//   while (!(edges = survey.Next(candidates)).empty()) ...      // measure them
//   plan = ...;
//   if (!(edges = survey.NotMeasured(plan)).empty()) ...        // measure them, and plan anew
//
// The planner prefers links whose estimates are too good, so each plan may use unmeasured links
// again. After kMostSurveyedPlans plans the survey is settled: later plans use measured links only,
// if that is possible.
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

// With at most this many candidates, the goodput of every pair is measured.
inline constexpr size_t kFewCandidates = 4;
// Number of plans after which the survey is settled.
inline constexpr uint32_t kMostSurveyedPlans = 4;

class LinkSurvey {
 public:
  // Returns the links to measure now. `candidates` must have all measurements made so far. An empty
  // result: a plan may be made.
  std::vector<ProbeEdge> Next(const std::vector<CandidateWorker>& candidates);
  // Takes a plan, and returns the edges (links) of the plan whose goodput this survey has not
  // requested yet. An empty result: the plan may be used. After 2 * kMostSurveyedPlans plans the
  // result is always empty.
  std::vector<ProbeEdge> NotMeasured(const Assignment& assignment);
  // True: the next plan has to use only requested links, if that is possible.
  bool IsSettled() const { return is_settled_; }
  // Returns whether the goodput of this link was requested.
  bool HasAsked(const WorkerId& one, const WorkerId& other) const {
    return asked_.contains(Pair(one, other));
  }
  // Notes that the link could not be measured.
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
