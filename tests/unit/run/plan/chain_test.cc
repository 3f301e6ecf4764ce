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

TEST(Chain, EdgesJoinTheStagesOfOneReplica) {
  EXPECT_TRUE(chain::MakeEdges(0, 0).empty());
  EXPECT_TRUE(chain::MakeEdges(0, 1).empty());
  EXPECT_TRUE(chain::MakeEdges(0, 1, EdgeId(0), /*tied=*/true).empty());
  const Edge tied = chain::MakeEdges(2, 3, EdgeId(10), /*tied=*/true).back();
  EXPECT_EQ(tied.id, EdgeId(12));
  EXPECT_EQ(tied.kind, EdgeKind::kTied);
  EXPECT_EQ(tied.from, (CellId{2, 0}));
  EXPECT_EQ(tied.to, (CellId{2, 2}));
  const std::vector<Edge> edges = chain::MakeEdges(2, 3, EdgeId(10));
  ASSERT_EQ(edges.size(), 2u);
  EXPECT_EQ(edges[0].id, EdgeId(10));
  EXPECT_EQ(edges[1].id, EdgeId(11));
  EXPECT_EQ(edges[0].kind, EdgeKind::kActivations);
  EXPECT_EQ(edges[0].from, (CellId{2, 0}));
  EXPECT_EQ(edges[0].to, (CellId{2, 1}));
  EXPECT_EQ(edges[1].from, edges[0].to);
  EXPECT_EQ(edges[1].to, (CellId{2, 2}));
}

}  // namespace
}  // namespace longhaul
