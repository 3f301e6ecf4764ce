#include "run/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/plan/chain.h"

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint32_t kStages = 3;

// Replicas of three stages, two layers each, whose copies of a stage reduce their gradients. The
// edges of the replicas have the numbers 0 to 3, those between them come after.
Assignment TwoReplicas() {
  Assignment assignment;
  for (uint32_t replica = 0; replica < 2; ++replica) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      assignment.cells.push_back({.id = {replica, stage},
                                  .layers = {2 * stage, 2},
                                  .roles = {chain::IsFirst(stage), chain::IsLast(stage, kStages)},
                                  .setting = {.depth = 4}});
    }
  }
  assignment.edges = chain::MakeEdges(2, kStages);
  return assignment;
}

std::string ProblemsOf(const Assignment& assignment) {
  const Status status = CheckAssignment(assignment);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(Message(status));
}

TEST(CellId, HasANameForPeople) {
  EXPECT_EQ(ToString(CellId{0, 1}), "stage 1");
  EXPECT_EQ(ToString(CellId{2, 1}), "stage 1 of replica 2");
  EXPECT_LT((CellId{0, 9}), (CellId{1, 0}));
}

TEST(EdgeKind, HasANameForPeople) {
  EXPECT_EQ(ToString(EdgeKind::kActivations), "activations");
  EXPECT_EQ(ToString(EdgeKind::kReplicas), "replicas");
  EXPECT_EQ(ToString(EdgeKind::kTied), "tied");
  EXPECT_EQ(ToString(EdgeKind::kState), "state");
}

TEST(Cell, HasAnEndpointOfATransport) {
  const Cell cell{.endpoints = {{"ucx", {"a:1"}}, {"grpc", {}}}};
  ASSERT_NE(cell.EndpointOf("ucx"), nullptr);
  EXPECT_EQ(cell.EndpointOf("ucx")->addresses, (std::vector<std::string>{"a:1"}));
  EXPECT_THAT(cell.EndpointOf("grpc")->addresses, IsEmpty());
  EXPECT_EQ(cell.EndpointOf("tcp"), nullptr);
}

TEST(Edge, HasTwoEndsAndTwoDirections) {
  Edge edge = chain::MakeEdges(1, 2).front();
  edge.forward.codec = "tah";
  edge.backward.codec = "none";
  EXPECT_EQ(edge.PeerOf(edge.from), edge.to);
  EXPECT_EQ(edge.PeerOf(edge.to), edge.from);
  EXPECT_EQ(edge.SentBy(edge.from).codec, "tah");
  EXPECT_EQ(edge.SentTo(edge.from).codec, "none");
  EXPECT_EQ(edge.SentBy(edge.to).codec, "none");
  EXPECT_EQ(edge.SentTo(edge.to).codec, "tah");
  EXPECT_EQ(edge.dialler(), edge.from);
  EXPECT_EQ(edge.dialled(), edge.to);
  edge.to_dials = true;
  EXPECT_EQ(edge.dialler(), edge.to);
  EXPECT_EQ(edge.dialled(), edge.from);
}

TEST(Assignment, FindsCellsAndEdges) {
  Assignment assignment = TwoReplicas();
  EXPECT_EQ(assignment.Find(CellId{1, 2})->id, (CellId{1, 2}));
  EXPECT_EQ(assignment.Find(CellId{2, 0}), nullptr);
  EXPECT_EQ(assignment.Find(EdgeId(3))->from, (CellId{1, 1}));
  EXPECT_EQ(assignment.Find(EdgeId(7)), nullptr);
  EXPECT_EQ(assignment.PlaceOf({1, 0}), 3u);
  EXPECT_EQ(assignment.PlaceOf({2, 0}), assignment.cells.size());
  assignment.Find(CellId{0, 1})->setting.depth = 9;
  EXPECT_EQ(assignment.cells[1].setting.depth, 9u);
  const Assignment& constant = assignment;
  EXPECT_EQ(constant.Find(CellId{0, 1}), &assignment.cells[1]);
}

TEST(Assignment, FollowsItsEdgesByKind) {
  const Assignment assignment = TwoReplicas();
  const CellId first{1, 0}, middle{1, 1}, last{1, 2};
  EXPECT_EQ(assignment.Incoming(first, EdgeKind::kActivations), nullptr);
  EXPECT_EQ(assignment.Incoming(middle, EdgeKind::kActivations)->from, first);
  EXPECT_EQ(assignment.Outgoing(middle, EdgeKind::kActivations)->to, last);
  EXPECT_EQ(assignment.Outgoing(last, EdgeKind::kActivations), nullptr);
  EXPECT_EQ(assignment.Incoming(middle, EdgeKind::kReplicas)->from, (CellId{0, 1}));
  EXPECT_EQ(assignment.Outgoing(middle, EdgeKind::kReplicas), nullptr);
  std::vector<EdgeId> ids;
  for (const Edge* edge : assignment.EdgesOf(middle, EdgeKind::kActivations)) {
    ids.push_back(edge->id);
  }
  EXPECT_EQ(ids, (std::vector<EdgeId>{EdgeId(2), EdgeId(3)}));
  EXPECT_EQ(assignment.EdgesOf(middle, EdgeKind::kReplicas).size(), 1u);
  EXPECT_THAT(assignment.EdgesOf(middle, EdgeKind::kTied), IsEmpty());
}

TEST(CheckAssignment, TakesReplicasOfAPipeline) {
  Assignment assignment = TwoReplicas();
  EXPECT_EQ(CheckAssignment(assignment), absl::OkStatus());
  assignment.cells[2].setting.activation_lead = 4;
  EXPECT_EQ(CheckAssignment(assignment), absl::OkStatus()) << "the depth above";
}

TEST(CheckAssignment, RefusesNone) {
  EXPECT_THAT(ProblemsOf({}), HasSubstr("expected an assignment with cells, got none"));
}

TEST(CheckAssignment, RefusesCellsOutOfOrderOrTwice) {
  Assignment swapped = TwoReplicas();
  std::swap(swapped.cells[0], swapped.cells[1]);
  EXPECT_THAT(ProblemsOf(swapped), HasSubstr("got stage 0 behind stage 1"));
  Assignment twice = TwoReplicas();
  twice.cells[4].id = twice.cells[3].id;
  EXPECT_THAT(ProblemsOf(twice), HasSubstr("got stage 0 of replica 1 behind stage 0 of replica 1"));
}

TEST(CheckAssignment, RefusesACellWithoutLayers) {
  Assignment assignment = TwoReplicas();
  assignment.cells[2].layers.count = 0;
  EXPECT_THAT(ProblemsOf(assignment), HasSubstr("expected layers in stage 2, got none"));
}

TEST(CheckAssignment, RefusesEdgesOutOfOrderOrTwice) {
  Assignment assignment = TwoReplicas();
  std::swap(assignment.edges[1], assignment.edges[2]);
  EXPECT_THAT(ProblemsOf(assignment), HasSubstr("got 1 behind 2"));
  assignment = TwoReplicas();
  assignment.edges[6].id = assignment.edges[5].id;
  EXPECT_THAT(ProblemsOf(assignment), HasSubstr("got 5 behind 5"));
}

TEST(CheckAssignment, RefusesAnEdgeThatEndsNowhere) {
  Assignment assignment = TwoReplicas();
  assignment.edges[6].to = {5, 2};
  EXPECT_THAT(ProblemsOf(assignment),
              HasSubstr("expected edge 6 between cells of the assignment, got stage 2 and stage 2 "
                        "of replica 5"));
}

TEST(CheckAssignment, RefusesAGapBetweenLayers) {
  Assignment assignment = TwoReplicas();
  assignment.cells[1].layers = {2, 1};
  EXPECT_THAT(ProblemsOf(assignment),
              HasSubstr("expected the layers of stage 2 to begin with 3, got 4"));
}

TEST(CheckAssignment, RefusesWhatIsNoChain) {
  Assignment cut = TwoReplicas();
  cut.edges.erase(cut.edges.begin());
  EXPECT_THAT(ProblemsOf(cut), HasSubstr("expected 0 links up and 1 down at stage 0, got 0 and 0"));
  Assignment doubled = TwoReplicas();
  doubled.edges.push_back({.id = EdgeId(7), .from = {0, 0}, .to = {0, 1}});
  EXPECT_THAT(ProblemsOf(doubled), HasSubstr("at stage 0, got 0 and 2"));
  Assignment no_head = TwoReplicas();
  no_head.cells[2].roles.head = false;
  EXPECT_THAT(ProblemsOf(no_head),
              HasSubstr("expected 1 links up and 1 down at stage 2, got 1 and 0"));
  // In a circle every cell has one way in and one way out.
  Assignment circle;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    circle.cells.push_back({.id = {0, stage}, .layers = {0, 1}});
  }
  circle.edges = {{.id = EdgeId(0), .from = {0, 0}, .to = {0, 1}},
                  {.id = EdgeId(1), .from = {0, 1}, .to = {0, 0}}};
  EXPECT_THAT(ProblemsOf(circle), HasSubstr("expected the layers of"));
}

TEST(CheckAssignment, RefusesALeadThatTheStagesAboveCannotHold) {
  Assignment assignment = TwoReplicas();
  assignment.cells[0].setting.depth = 3;
  assignment.cells[2].setting.activation_lead = 4;
  EXPECT_THAT(ProblemsOf(assignment),
              AllOf(HasSubstr("expected a depth of stage 2's activation lead, 4, in all stages "
                              "above it, got 3 in stage 0"),
                    Not(HasSubstr("in stage 1"))));
}

TEST(CheckAssignment, NamesAllThatIsWrong) {
  Assignment assignment = TwoReplicas();
  std::swap(assignment.cells[3], assignment.cells[4]);
  assignment.cells[5].layers.count = 0;
  std::swap(assignment.edges[0], assignment.edges[1]);
  assignment.edges[6].from = {0, 7};
  assignment.cells[1].layers = {2, 1};
  assignment.cells[2].setting.activation_lead = 5;
  EXPECT_THAT(ProblemsOf(assignment),
              AllOf(HasSubstr("got stage 0 of replica 1 behind stage 1 of replica 1"),
                    HasSubstr("expected layers in stage 2 of replica 1"),
                    HasSubstr("got 0 behind 1"), HasSubstr("expected edge 6 between"),
                    HasSubstr("to begin with 3, got 4"), HasSubstr("activation lead, 5")));
}

TEST(GroupText, NamesRanksAndDevices) {
  EXPECT_EQ(GroupText({2, 1}, "cpu", std::vector<uint32_t>{0, 1}), "2 ranks on cpu 0-1");
  EXPECT_EQ(GroupText({4, 2}, "cpu", std::vector<uint32_t>{0, 1, 2, 3}),
            "4 ranks, experts in 2 parts, on cpu 0-3");
  EXPECT_EQ(GroupText({5, 1}, "cuda", std::vector<uint32_t>{0, 2, 3, 4, 7}),
            "5 ranks on cuda 0, 2-4, 7");
  EXPECT_EQ(GroupText({1, 1}, "", std::vector<uint32_t>{3}), "1 rank on devices 3");
}

}  // namespace
}  // namespace longhaul
