#include "coordinator/state/planning/link_survey.h"

#include <utility>

#include "planner/link_estimates.h"

namespace longhaul::coordinator {

void LinkSurvey::Add(const WorkerId& from, const WorkerId& to, EdgeKind kind,
                     std::vector<ProbeEdge>* edges) {
  if (!asked_.insert(Pair(from, to)).second) return;
  edges->push_back({EdgeId(static_cast<uint32_t>(edges->size())), from, to, kind});
}

std::vector<ProbeEdge> LinkSurvey::Next(const std::vector<CandidateWorker>& candidates) {
  std::vector<ProbeEdge> edges;
  const bool are_few = candidates.size() <= kFewCandidates;
  if (phase_ == Phase::kBegin && !are_few) {
    phase_ = Phase::kRoundTrips;
    for (size_t a = 0; a < candidates.size(); ++a) {
      for (size_t b = a + 1; b < candidates.size(); ++b) {
        edges.push_back({.id = EdgeId(static_cast<uint32_t>(edges.size())),
                         .from = candidates[a].id,
                         .to = candidates[b].id,
                         .round_trips_only = true});
      }
    }
    return edges;
  }
  const bool is_over = std::exchange(phase_, Phase::kGoodput) == Phase::kGoodput;
  if (is_over) return edges;
  if (!are_few) {
    for (const auto& [a, b] : TellingPairs(candidates)) {
      Add(candidates[a].id, candidates[b].id, EdgeKind::kActivations, &edges);
    }
    return edges;
  }
  for (size_t a = 0; a < candidates.size(); ++a) {
    for (size_t b = a + 1; b < candidates.size(); ++b) {
      Add(candidates[a].id, candidates[b].id, EdgeKind::kActivations, &edges);
    }
  }
  return edges;
}

std::vector<ProbeEdge> LinkSurvey::NotMeasured(const Assignment& assignment) {
  std::vector<ProbeEdge> edges;
  if (plans_ >= 2 * kMostSurveyedPlans) return edges;
  for (const Edge& edge : assignment.edges) {
    Add(assignment.Find(edge.from)->worker, assignment.Find(edge.to)->worker, edge.kind, &edges);
  }
  is_settled_ = ++plans_ >= kMostSurveyedPlans;
  return edges;
}

}  // namespace longhaul::coordinator
