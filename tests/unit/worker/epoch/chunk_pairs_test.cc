// Which cells give each other chunks, and who dials.
#include "worker/epoch/chunk_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/plan/chain.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CellId At(uint32_t stage) {
  return {.replica = 0, .stage = stage};
}

Assignment ChainOf(uint32_t stages) {
  Assignment assignment;
  assignment.edges = chain::MakeEdges(/*replicas=*/1, stages);
  for (Edge& edge : assignment.edges) {
    edge.transport = "ucx";
    edge.forward.bits_per_second = 100e6;
    edge.backward.bits_per_second = 40e6;
  }
  for (uint32_t stage = 0; stage < stages; ++stage) {
    Cell& cell = assignment.cells.emplace_back();
    cell.id = At(stage);
    cell.worker_name = "w" + std::to_string(stage);
    cell.roles = {.embedding = chain::IsFirst(stage), .head = chain::IsLast(stage, stages)};
    cell.endpoints = {{.transport = "ucx", .addresses = {"10.0.0." + std::to_string(stage)}}};
  }
  return assignment;
}

TEST(ChunkPairs, OneStageIsAlone) {
  EXPECT_THAT(ChunkPairsOf(ChainOf(1), At(0), true), IsEmpty());
}

TEST(ChunkPairs, NeighboursDialAsTheirEdgeDoes) {
  Assignment two = ChainOf(2);
  for (const bool to_dials : {true, false}) {
    two.edges[0].to_dials = to_dials;
    const auto of_first = ChunkPairsOf(two, At(0), false);
    const auto of_last = ChunkPairsOf(two, At(1), false);
    ASSERT_EQ(of_first.size(), 1u);
    ASSERT_EQ(of_last.size(), 1u);
    EXPECT_EQ(of_first[0].peer, At(1));
    EXPECT_EQ(of_last[0].peer, At(0));
    EXPECT_EQ(of_last[0].peer_worker, "w0");
    EXPECT_TRUE(of_first[0].fetches_for);
    EXPECT_FALSE(of_last[0].fetches_for);
    EXPECT_EQ(of_first[0].bits_per_second, 100e6);
    EXPECT_EQ(of_last[0].bits_per_second, 40e6);
    ASSERT_EQ(of_first[0].ways.size(), 1u);
    ASSERT_EQ(of_last[0].ways.size(), 1u);
    EXPECT_EQ(of_first[0].ways[0].number, of_last[0].ways[0].number);
    EXPECT_EQ(of_first[0].ways[0].dials, !to_dials);
    EXPECT_EQ(of_last[0].ways[0].dials, to_dials);
    const auto& dialler = to_dials ? of_last[0] : of_first[0];
    EXPECT_THAT(dialler.ways[0].addresses, ElementsAre(to_dials ? "10.0.0.0" : "10.0.0.1"));
    // Where the other one comes from.
    const auto& dialled = to_dials ? of_first[0] : of_last[0];
    EXPECT_THAT(dialled.ways[0].addresses, ElementsAre(to_dials ? "10.0.0.1" : "10.0.0.0"));
  }
}

TEST(ChunkPairs, OthersTryBothWays) {
  const Assignment three = ChainOf(3);
  EXPECT_THAT(ChunkPairsOf(three, At(1), false), IsEmpty()) << "it reads no text";
  const auto of_first = ChunkPairsOf(three, At(0), false);
  const auto of_last = ChunkPairsOf(three, At(2), false);
  ASSERT_EQ(of_first.size(), 1u);
  ASSERT_EQ(of_last.size(), 1u);
  ASSERT_EQ(of_first[0].ways.size(), 2u);
  ASSERT_EQ(of_last[0].ways.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(of_first[0].ways[i].number, of_last[0].ways[i].number);
    EXPECT_NE(of_first[0].ways[i].dials, of_last[0].ways[i].dials);
  }
  EXPECT_NE(of_first[0].ways[0].number, of_first[0].ways[1].number);
}

TEST(ChunkPairs, NobodyDialsWhoHasNoAddress) {
  Assignment three = ChainOf(3);
  three.cells[0].endpoints[0].addresses.clear();
  const auto of_first = ChunkPairsOf(three, At(0), false);
  const auto of_last = ChunkPairsOf(three, At(2), false);
  ASSERT_EQ(of_first.size(), 1u);
  ASSERT_EQ(of_last.size(), 1u);
  ASSERT_EQ(of_first[0].ways.size(), 1u);
  ASSERT_EQ(of_last[0].ways.size(), 1u);
  EXPECT_TRUE(of_first[0].ways[0].dials);
  EXPECT_FALSE(of_last[0].ways[0].dials);
  EXPECT_EQ(of_first[0].ways[0].number, of_last[0].ways[0].number);
}

TEST(ChunkPairs, WhereTheOneDoesNotListenTheyHaveNone) {
  Assignment three = ChainOf(3);
  three.edges[1].transport = "grpc";
  three.cells[2].endpoints.push_back({.transport = "grpc", .addresses = {"10.0.0.2:2"}});
  EXPECT_THAT(ChunkPairsOf(three, At(2), false), IsEmpty());
}

TEST(ChunkPairs, EveryStageHasOneWithTheFirstWhereAllRead) {
  const Assignment four = ChainOf(4);
  std::vector<CellId> peers;
  std::vector<EdgeId> numbers;
  for (const ChunkPair& pair : ChunkPairsOf(four, At(0), true)) {
    peers.push_back(pair.peer);
    for (const auto& way : pair.ways) numbers.push_back(way.number);
  }
  EXPECT_THAT(peers, ElementsAre(At(1), At(2), At(3)));
  std::ranges::sort(numbers);
  EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
  for (uint32_t stage = 1; stage < 4; ++stage) {
    const auto pairs = ChunkPairsOf(four, At(stage), true);
    ASSERT_EQ(pairs.size(), 1u);
    EXPECT_EQ(pairs[0].peer, At(0));
  }
}

TEST(ChunkPairs, StayWithinTheirReplica) {
  Assignment both = ChainOf(2);
  for (uint32_t stage = 0; stage < 2; ++stage) {
    Cell cell = both.cells[stage];
    cell.id.replica = 1;
    both.cells.push_back(cell);
  }
  both.edges = chain::MakeEdges(/*replicas=*/2, 2);
  for (Edge& edge : both.edges) edge.transport = "ucx";
  const auto pairs = ChunkPairsOf(both, {.replica = 1, .stage = 0}, false);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].peer, (CellId{.replica = 1, .stage = 1}));
}

}  // namespace
}  // namespace longhaul::worker
