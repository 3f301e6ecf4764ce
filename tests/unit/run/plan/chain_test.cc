#include "run/plan/chain.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(Chain, BoundariesLieBetweenStages) {
  EXPECT_EQ(chain::Boundaries(0), 0u);
  EXPECT_EQ(chain::Boundaries(1), 0u);
  EXPECT_EQ(chain::Boundaries(5), 4u);
  for (uint32_t boundary = 0; boundary < chain::Boundaries(5); ++boundary) {
    EXPECT_EQ(chain::BoundaryBelow(chain::UpperStage(boundary)), boundary);
    EXPECT_EQ(chain::BoundaryAbove(chain::LowerStage(boundary)), boundary);
    EXPECT_LT(chain::UpperStage(boundary), chain::LowerStage(boundary));
  }
}

TEST(Chain, HasTwoEnds) {
  EXPECT_TRUE(chain::IsFirst(0));
  EXPECT_FALSE(chain::IsFirst(1));
  EXPECT_TRUE(chain::IsLast(4, 5));
  EXPECT_FALSE(chain::IsLast(3, 5));
  EXPECT_TRUE(chain::IsFirst(0) && chain::IsLast(0, 1)) << "one stage is both";
  EXPECT_EQ(chain::StagesFrom(0, 5), 5u);
  EXPECT_EQ(chain::StagesFrom(4, 5), 1u);
}

TEST(Chain, AStageInTheMiddleHasTwoBoundaries) {
  EXPECT_EQ(chain::MostBoundariesOfAStage(1), 0u);
  EXPECT_EQ(chain::MostBoundariesOfAStage(2), 1u);
  EXPECT_EQ(chain::MostBoundariesOfAStage(3), 2u);
  EXPECT_EQ(chain::MostBoundariesOfAStage(64), 2u);
}

TEST(Chain, CellsStandReplicaByReplica) {
  EXPECT_EQ(chain::PlaceOf({0, 2}, 3), 2u);
  EXPECT_EQ(chain::PlaceOf({1, 0}, 3), 3u);
  EXPECT_EQ(chain::PlaceOf({2, 1}, 3), 7u);
}

TEST(Chain, EdgesJoinTheStagesOfOneReplica) {
  EXPECT_TRUE(chain::MakeEdges(1, 0).empty());
  EXPECT_TRUE(chain::MakeEdges(1, 1).empty());
  EXPECT_TRUE(chain::MakeEdges(1, 1, /*tied=*/true).empty());
  const std::vector<Edge> edges = chain::MakeEdges(1, 3, /*tied=*/true);
  ASSERT_EQ(edges.size(), 3u);
  for (uint32_t k = 0; k < edges.size(); ++k) EXPECT_EQ(edges[k].id, EdgeId(k));
  EXPECT_EQ(edges[0].kind, EdgeKind::kActivations);
  EXPECT_EQ(edges[0].from, (CellId{0, 0}));
  EXPECT_EQ(edges[0].to, (CellId{0, 1}));
  EXPECT_EQ(edges[1].from, edges[0].to);
  EXPECT_EQ(edges[1].to, (CellId{0, 2}));
  EXPECT_EQ(edges[2].kind, EdgeKind::kTied);
  EXPECT_EQ(edges[2].from, (CellId{0, 0}));
  EXPECT_EQ(edges[2].to, (CellId{0, 2}));
}

TEST(Chain, EdgesOfReplicasJoinAnyTwoOfAStage) {
  const std::vector<Edge> edges = chain::MakeEdges(3, 2);
  ASSERT_EQ(edges.size(), 3u + 2 * 3);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    EXPECT_EQ(edges[replica].kind, EdgeKind::kActivations);
    EXPECT_EQ(edges[replica].from, (CellId{replica, 0}));
    EXPECT_EQ(edges[replica].to, (CellId{replica, 1}));
  }
  const std::pair<uint32_t, uint32_t> pairs[] = {{0, 1}, {0, 2}, {1, 2}};
  for (uint32_t stage = 0; stage < 2; ++stage) {
    for (uint32_t k = 0; k < 3; ++k) {
      const Edge& edge = edges[3 + 3 * stage + k];
      EXPECT_EQ(edge.id, EdgeId(3 + 3 * stage + k));
      EXPECT_EQ(edge.kind, EdgeKind::kReplicas);
      EXPECT_EQ(edge.from, (CellId{pairs[k].first, stage}));
      EXPECT_EQ(edge.to, (CellId{pairs[k].second, stage}));
    }
  }
}

}  // namespace
}  // namespace longhaul
