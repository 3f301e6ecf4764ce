// Which edges are measured when, and what becomes of the answers.
#include "coordinator/state/books/probe_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "run/plan/chain.h"
#include "tests/unit/coordinator/state/books/now.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const MonoTime kUntil = kNow + absl::Seconds(15);

WorkerId Of(uint32_t stage) {
  return WorkerId(std::string(1, static_cast<char>('a' + stage)));
}
// A pipeline whose stages are on workers a, b, c...
std::vector<ProbeEdge> Pipeline(uint32_t stages) {
  std::vector<ProbeEdge> edges;
  for (const Edge& edge : chain::MakeEdges(1, stages)) {
    edges.push_back({edge.id, Of(edge.from.stage), Of(edge.to.stage)});
  }
  return edges;
}
v1::LinkProbed Said(uint64_t probe, double bits_per_second, double round_trip = 0.02) {
  v1::LinkProbed answer;
  answer.set_probe(probe);
  answer.set_goodput_bits_per_second(bits_per_second);
  answer.set_round_trip_seconds(round_trip);
  return answer;
}
// Begins a round and asks the ends of all its edges: probe 100 + the edge's number.
std::vector<uint64_t> BeginAll(ProbeRounds* rounds) {
  std::vector<uint64_t> probes;
  for (const ProbeEdge& edge : rounds->Begin(kUntil)) {
    probes.push_back(rounds->Add({.id = 100 + edge.id.value(), .edge = edge}, kNow).id);
  }
  return probes;
}

TEST(ProbeRounds, OfNoEdgesAreOver) {
  EXPECT_TRUE(ProbeRounds().IsOver());
  EXPECT_TRUE(ProbeRounds(Pipeline(1)).IsOver());
  EXPECT_FALSE(ProbeRounds(Pipeline(2)).IsOver());
}

TEST(ProbeRounds, OfAPipelineAreTwo) {
  ProbeRounds rounds(Pipeline(6));
  EXPECT_THAT(rounds.edges(), SizeIs(5));
  EXPECT_FALSE(rounds.HasBegun());
  EXPECT_THAT(BeginAll(&rounds), ElementsAre(100, 102, 104));
  EXPECT_TRUE(rounds.HasBegun());
  EXPECT_TRUE(rounds.IsWaiting());
  rounds.GiveUp(kUntil);
  EXPECT_FALSE(rounds.IsWaiting());
  EXPECT_FALSE(rounds.IsOver());
  EXPECT_THAT(BeginAll(&rounds), ElementsAre(101, 103));
  rounds.GiveUp(kUntil);
  EXPECT_TRUE(rounds.IsOver());
}

TEST(ProbeRounds, OfAnyGraphHaveNoWorkerTwice) {
  // Two pipelines over the same three workers, one of them backwards, and an edge across.
  std::vector<ProbeEdge> edges = Pipeline(3);
  for (const auto& [from, to] : {std::pair(2u, 1u), std::pair(1u, 0u), std::pair(0u, 2u)}) {
    edges.push_back({EdgeId(static_cast<uint32_t>(edges.size())), Of(from), Of(to)});
  }
  ProbeRounds rounds(edges);
  size_t measured = 0;
  while (!rounds.IsOver()) {
    std::set<WorkerId> busy;
    for (const ProbeEdge& edge : rounds.Begin(kUntil)) {
      EXPECT_TRUE(busy.insert(edge.from).second);
      EXPECT_TRUE(busy.insert(edge.to).second);
      ++measured;
    }
  }
  EXPECT_EQ(measured, edges.size());
}

TEST(ProbeRounds, AnEdgeIsMeasuredWhenBothEndsHaveAnswered) {
  ProbeRounds rounds(Pipeline(2));
  BeginAll(&rounds);
  EXPECT_EQ(rounds.NextWake(), kUntil);
  const Probe* probe = rounds.Answer(Of(0), Said(100, 10e6, 0.03));
  ASSERT_NE(probe, nullptr);
  EXPECT_FALSE(probe->IsAnswered());
  EXPECT_EQ(probe->Result(), std::nullopt);
  EXPECT_THAT(rounds.AwaitedOf(Of(0)), IsEmpty());
  EXPECT_THAT(rounds.AwaitedOf(Of(1)), SizeIs(1));
  probe = rounds.Answer(Of(1), Said(100, 40e6, 0.02));
  ASSERT_NE(probe, nullptr);
  EXPECT_TRUE(probe->IsAnswered());
  ASSERT_TRUE(probe->Result().has_value());
  EXPECT_EQ(probe->Result()->forward_bits_per_second, 40e6);  // as it arrived at the lower end
  EXPECT_EQ(probe->Result()->backward_bits_per_second, 10e6);
  EXPECT_EQ(probe->Result()->round_trip, absl::Milliseconds(20));
  EXPECT_TRUE(rounds.IsOver());
  EXPECT_EQ(rounds.NextWake(), MonoTime::max());
}

TEST(ProbeRounds, TheFirstAnswerOfWhoWasAskedCounts) {
  ProbeRounds rounds(Pipeline(3));
  BeginAll(&rounds);
  EXPECT_EQ(rounds.Answer(Of(0), Said(7, 1e6)), nullptr);
  EXPECT_EQ(rounds.Answer(Of(2), Said(100, 1e6)), nullptr);  // not an end of that edge
  EXPECT_NE(rounds.Answer(Of(0), Said(100, 1e6)), nullptr);
  EXPECT_EQ(rounds.Answer(Of(0), Said(100, 9e6)), nullptr);
  EXPECT_EQ(rounds.Answer(Of(1), Said(100, 1e6))->Result()->backward_bits_per_second, 1e6);
}

TEST(ProbeRounds, ValuesThatCannotBeAreAProblem) {
  for (const v1::LinkProbed& answer :
       {Said(100, std::numeric_limits<double>::quiet_NaN()), Said(100, -1), Said(100, 1e15),
        Said(100, 1e6, 3600), Said(100, 1e6, -1)}) {
    ProbeRounds rounds(Pipeline(2));
    BeginAll(&rounds);
    rounds.Answer(Of(0), answer);
    const Probe* probe = rounds.Answer(Of(1), Said(100, 1e6));
    ASSERT_NE(probe, nullptr);
    EXPECT_TRUE(probe->IsAnswered());
    EXPECT_EQ(probe->Result(), std::nullopt);
    EXPECT_EQ(probe->Problem(), "it reported rates or times that cannot be");
  }
}

TEST(ProbeRounds, WhatIsLateIsGivenUp) {
  ProbeRounds rounds(Pipeline(4));
  BeginAll(&rounds);
  for (uint32_t stage : {0u, 1u}) rounds.Answer(Of(stage), Said(100, 1e6));
  rounds.Answer(Of(2), Said(102, 1e6));
  EXPECT_THAT(rounds.GiveUp(kUntil + -absl::Nanoseconds(1)), IsEmpty());
  const std::vector<Probe> late = rounds.GiveUp(kUntil);
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].edge.id, EdgeId(2));
  EXPECT_EQ(late[0].Result(), std::nullopt);
  EXPECT_EQ(late[0].Problem(), "");
  EXPECT_FALSE(rounds.IsWaiting());
  EXPECT_THAT(rounds.AwaitedOf(Of(3)), IsEmpty());
  EXPECT_EQ(rounds.Answer(Of(3), Said(102, 1e6)), nullptr);
}

TEST(ProbeRounds, OneEndDials) {
  Probe probe{.edge = {EdgeId(0), Of(0), Of(1)}, .to_dials = true};
  EXPECT_TRUE(probe.Dials(Of(1)));
  EXPECT_FALSE(probe.Dials(Of(0)));
  probe.to_dials = false;
  EXPECT_TRUE(probe.Dials(Of(0)));
  EXPECT_FALSE(probe.Dials(Of(1)));
  EXPECT_EQ(probe.PeerOf(Of(0)), Of(1));
  EXPECT_EQ(probe.PeerOf(Of(1)), Of(0));
}

TEST(ProbeRounds, SayOnceHowLongTheyTook) {
  ProbeRounds rounds(Pipeline(2));
  EXPECT_EQ(rounds.TakeDuration(kNow), std::nullopt);
  BeginAll(&rounds);
  rounds.GiveUp(kUntil);
  EXPECT_EQ(rounds.TakeDuration(kUntil), absl::Seconds(15));
  EXPECT_EQ(rounds.TakeDuration(kUntil), std::nullopt);
}

TEST(ProbeRounds, BeginAnew) {
  ProbeRounds rounds(Pipeline(2));
  BeginAll(&rounds);
  rounds.Restart();
  EXPECT_TRUE(rounds.IsWaiting());  // what is under way is waited for
  rounds.GiveUp(kUntil);
  EXPECT_FALSE(rounds.IsOver());
  EXPECT_THAT(BeginAll(&rounds), ElementsAre(100));
}

}  // namespace
}  // namespace longhaul::coordinator
