#include "coordinator/state/planning/link_survey.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace longhaul::coordinator {
namespace {

std::vector<CandidateWorker> Workers(size_t count) {
  std::vector<CandidateWorker> workers(count);
  for (size_t w = 0; w < count; ++w) workers[w].id = WorkerId(std::string(1, char('a' + w)));
  return workers;
}

Assignment Chain(const std::vector<std::string>& workers) {
  Assignment assignment;
  for (uint32_t s = 0; s < workers.size(); ++s) {
    Cell& cell = assignment.cells.emplace_back();
    cell.id.stage = s;
    cell.worker = WorkerId(workers[s]);
    if (s == 0) continue;
    Edge& edge = assignment.edges.emplace_back();
    edge.from = {0, s - 1};
    edge.to = {0, s};
  }
  return assignment;
}

std::set<std::string> PairsOf(const std::vector<ProbeEdge>& edges) {
  std::set<std::string> pairs;
  for (const ProbeEdge& edge : edges) pairs.insert(edge.from.value() + edge.to.value());
  return pairs;
}

void PutInOneRegion(std::vector<CandidateWorker>* workers) {
  for (CandidateWorker& from : *workers) {
    for (const CandidateWorker& to : *workers) {
      if (from.id != to.id) from.to[to.id].latency = absl::Milliseconds(1);
    }
  }
}

TEST(LinkSurvey, FewCandidatesMeasureAllTheirPairs) {
  LinkSurvey survey;
  const auto workers = Workers(3);
  EXPECT_EQ(PairsOf(survey.Next(workers)), (std::set<std::string>{"ab", "ac", "bc"}));
  EXPECT_TRUE(survey.Next(workers).empty());
  EXPECT_TRUE(survey.NotMeasured(Chain({"c", "a", "b"})).empty());
}

TEST(LinkSurvey, ManyBeginWithRoundTripsAndEndWithWhatPlansUse) {
  LinkSurvey survey;
  std::vector<CandidateWorker> workers = Workers(6);
  const std::vector<ProbeEdge> trips = survey.Next(workers);
  EXPECT_EQ(trips.size(), 15u);
  for (const ProbeEdge& edge : trips) EXPECT_TRUE(edge.round_trips_only);
  PutInOneRegion(&workers);
  const std::vector<ProbeEdge> telling = survey.Next(workers);
  EXPECT_EQ(telling.size(), 3u);  // each with a neighbour, all in one region
  for (const ProbeEdge& edge : telling) EXPECT_FALSE(edge.round_trips_only);
  EXPECT_TRUE(survey.Next(workers).empty());
  const Assignment plan = Chain({"a", "b", "c", "d"});
  const std::set<std::string> asked = PairsOf(telling), more = PairsOf(survey.NotMeasured(plan));
  for (const std::string pair : {"ab", "bc", "cd"}) {
    EXPECT_NE(asked.contains(pair), more.contains(pair)) << pair;
  }
  EXPECT_TRUE(survey.NotMeasured(plan).empty());
}

TEST(LinkSurvey, PairsOfOneStageAreMeasuredAsSuch) {
  LinkSurvey survey;
  std::vector<CandidateWorker> workers = Workers(6);
  PutInOneRegion(&workers);
  while (!survey.Next(workers).empty()) {
  }
  Assignment plan = Chain({"a"});
  Cell& other = plan.cells.emplace_back();
  other.id.replica = 1;
  other.worker = WorkerId("f");
  Edge& edge = plan.edges.emplace_back();
  edge.kind = EdgeKind::kReplicas;
  edge.to = {1, 0};
  const auto asked = survey.NotMeasured(plan);
  ASSERT_EQ(PairsOf(asked), std::set<std::string>{"af"});
  EXPECT_EQ(asked[0].kind, EdgeKind::kReplicas);
}

TEST(LinkSurvey, EndsThoughPlansKeepChanging) {
  LinkSurvey survey;
  std::vector<CandidateWorker> workers = Workers(26);
  while (!survey.Next(workers).empty()) {
  }
  uint32_t plans = 0;
  for (char other = 'b'; other <= 'z' && !survey.IsSettled(); ++other, ++plans) {
    survey.NotMeasured(Chain({"a", std::string(1, other)}));
  }
  EXPECT_EQ(plans, kMostSurveyedPlans);
  EXPECT_TRUE(survey.HasAsked(WorkerId("b"), WorkerId("a")));
  EXPECT_FALSE(survey.HasAsked(WorkerId("z"), WorkerId("w")));
}

}  // namespace
}  // namespace longhaul::coordinator
