// From what links are asked to be to what tc and the relay are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/cluster/links.h"
#include "deploy/cluster/network.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterState Three() {
  ClusterState state;
  state.name = "t";
  state.shaper = "htb";
  for (uint32_t number = 1; number <= 3; ++number) {
    ClusterWorkerState worker;
    worker.name = "worker" + std::to_string(number);
    worker.data_address = DataAddress(0, number);
    worker.link = {10'000'000, 20'000'000, {}};
    state.workers.push_back(worker);
  }
  return state;
}

TEST(LinksOfState, RatesAreEachEndsOwn) {
  const ClusterState state = Three();
  EXPECT_EQ(UplinkShape(state, 1), (LineShape{.bits_per_second = 10'000'000}));
  EXPECT_EQ(DownlinkShape(state, 1), (LineShape{.bits_per_second = 20'000'000}));
  EXPECT_FALSE(NeedsRelay(state));
}

TEST(LinksOfState, TheWorseEndsQualityCountsUnlessThePathHasOne) {
  ClusterState state = Three();
  state.workers[0].link.quality.delay = absl::Milliseconds(10);
  state.workers[1].link.quality.delay = absl::Milliseconds(50);
  EXPECT_EQ(QualityOf(state, 1, 2).delay, absl::Milliseconds(50));
  EXPECT_EQ(QualityOf(state, 2, 1).delay, absl::Milliseconds(50));
  EXPECT_EQ(QualityOf(state, 3, 1).delay, absl::Milliseconds(10));
  state.paths.push_back({"worker1", "worker2", 0, LinkQuality{absl::Milliseconds(5), {}, 0}});
  EXPECT_EQ(QualityOf(state, 1, 2).delay, absl::Milliseconds(5));
  EXPECT_EQ(QualityOf(state, 2, 1).delay, absl::Milliseconds(50));
}

TEST(LinksOfState, TheRelayGetsEveryPathAndTcTheRates) {
  ClusterState state = Three();
  state.workers[2].link.quality = {absl::Milliseconds(30), {}, 0.01};
  state.workers[1].link_up = false;
  state.paths.push_back({"worker1", "worker3", 5'000'000, std::nullopt});
  EXPECT_TRUE(NeedsRelay(state));
  const relay::RelayConfig config = RelayConfigOf(state);
  EXPECT_THAT(config.ports, ElementsAre(relay::RelayPort{"d1", true}, relay::RelayPort{"d2", false},
                                        relay::RelayPort{"d3", true}));
  ASSERT_EQ(config.paths.size(), 9u);
  EXPECT_EQ(config.paths[0 * 3 + 2].delay, absl::Milliseconds(30));
  EXPECT_EQ(config.paths[2 * 3 + 1].delay, absl::Milliseconds(30));
  EXPECT_TRUE(config.paths[0 * 3 + 1].Perfect());
  EXPECT_TRUE(config.paths[2 * 3 + 2].Perfect());
  const LineShape line = UplinkShape(state, 1);
  EXPECT_THAT(line.paths, ElementsAre(PathShape{"10.77.0.13", 5'000'000, {}}));
  EXPECT_FALSE(line.netem);
  EXPECT_TRUE(line.single_packets);  // what goes to worker3 may be lost
}

TEST(LinksOfState, WhatTheRelayDoesIsNothingToTc) {
  ClusterState state = Three();
  for (ClusterWorkerState& worker : state.workers) worker.link.up_bits_per_second = 0;
  state.paths.push_back(
      {"worker1", "worker3", 0, LinkQuality{absl::Milliseconds(30), {}, /*loss=*/0}});
  EXPECT_TRUE(NeedsRelay(state));
  EXPECT_FALSE(UplinkShape(state, 1).Shaped());
}

TEST(LinksOfState, WithNetemTcDoesItAll) {
  ClusterState state = Three();
  state.delay_by = DelayBy::kNetem;
  EXPECT_FALSE(UplinkShape(state, 1).netem);  // nothing asks for it
  const LinkQuality near{absl::Milliseconds(10), {}, 0}, far{absl::Milliseconds(80), {}, 0};
  for (ClusterWorkerState& worker : state.workers) worker.link.quality = near;
  EXPECT_TRUE(UplinkShape(state, 1).paths.empty());
  state.workers[2].link.quality = far;
  EXPECT_FALSE(NeedsRelay(state));
  const LineShape line = UplinkShape(state, 1);
  EXPECT_TRUE(line.netem);
  EXPECT_EQ(line.quality, near);
  EXPECT_THAT(line.paths, ElementsAre(PathShape{"10.77.0.13", 0, far}));
  EXPECT_TRUE(UplinkShape(state, 3).paths.empty());
  EXPECT_EQ(UplinkShape(state, 3).quality, far);
  EXPECT_FALSE(DownlinkShape(state, 3).netem);
}

TEST(LinksOfState, WhatTheKernelCannotDoIsRefused) {
  ClusterState state = Three();
  state.paths.push_back({"worker1", "worker3", 5'000'000, std::nullopt});
  EXPECT_TRUE(CheckLinks(state).ok());
  state.shaper = "tbf";
  EXPECT_THAT(std::string(Message(CheckLinks(state))), HasSubstr("modprobe sch_htb"));
  state.paths[0] = {"worker1", "worker3", 0,
                    LinkQuality{absl::Milliseconds(1), absl::Milliseconds(2), 0}};
  EXPECT_TRUE(absl::IsInvalidArgument(CheckLinks(state)));
}

}  // namespace
}  // namespace longhaul
