#include "deploy/cluster/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(ClusterNetwork, NamesFitIntoAnInterfaceAndStayApart) {
  for (const char* name : {"local", "a", "w1", "under_score", "twelve_chars"}) {
    EXPECT_TRUE(CheckClusterName(name).ok()) << name;
    EXPECT_LE(HostInterface(name).size(), 15u);
  }
  // "a-w1" would own namespaces that look like those of worker 1 of "a".
  for (const char* name : {"", "a-w1", "Local", "a b", "a/b", "..", "thirteen_char"}) {
    EXPECT_FALSE(CheckClusterName(name).ok()) << name;
  }
}

TEST(ClusterNetwork, AddressesOfTheLastWorkerAreNobodyElses) {
  EXPECT_EQ(CoordinatorAddress(3), "10.78.3.1:7070");
  EXPECT_EQ(ControlAddress(3, 1), "10.78.3.11");
  EXPECT_EQ(DataAddress(3, 2), "10.77.3.12");
  EXPECT_EQ(ControlAddress(3, kMaxClusterWorkers), "10.78.3.74");
  EXPECT_LT(10 + kMaxClusterWorkers, 254u);  // .254 is the host's
}

TEST(ClusterNetwork, SubnetAvoidsTheHostsRoutes) {
  EXPECT_EQ(*ChooseSubnet("[]"), 0u);
  EXPECT_EQ(*ChooseSubnet(R"([{"dst":"default"},{"dst":"192.168.0.0/16"}])"), 0u);
  EXPECT_EQ(*ChooseSubnet(R"([{"dst":"10.78.0.0/24"},{"dst":"10.78.1.7"}])"), 2u);
  EXPECT_EQ(*ChooseSubnet(R"([{"dst":"10.78.0.0/22"}])"), 4u);
}

TEST(ClusterNetwork, SubnetInsideAWideRouteIsTakenWhenThereIsNoOther) {
  // A VPN that routes all of 10/8: ours is the more specific route and wins.
  EXPECT_EQ(*ChooseSubnet(R"([{"dst":"10.0.0.0/8"},{"dst":"10.78.0.0/24"}])"), 1u);
}

TEST(ClusterNetwork, SubnetRunsOut) {
  std::string routes = "[";
  for (int subnet = 0; subnet < 256; ++subnet) {
    routes += (subnet ? "," : "") + std::string(R"({"dst":"10.78.)") + std::to_string(subnet) +
              R"(.0/24"})";
  }
  const auto chosen = ChooseSubnet(routes + "]");
  EXPECT_TRUE(absl::IsResourceExhausted(chosen.status())) << chosen.status();
  EXPECT_TRUE(absl::IsInternal(ChooseSubnet("nonsense").status()));
}

}  // namespace
}  // namespace longhaul
