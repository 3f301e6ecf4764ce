// What a worker's hello says of where it is reached. That an address really goes away is tested in
// network namespaces (tests/multiprocess/faults).
#include "worker/agent/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::function<std::string()> At(const std::string& coordinator) {
  return [coordinator] { return coordinator; };
}

const std::map<std::string, std::string> kBoth = {{"grpc", "0.0.0.0:7100"}, {"ucx", "10.0.0.2:7"}};

TEST(EndpointsTest, WhereItListensUnlessItSaysOtherwise) {
  Endpoints endpoints({{"grpc", "10.0.0.2:8"}, {"ucx", "10.0.0.2:7"}}, "grpc", {},
                      At("127.0.0.1:1"));
  const auto found = endpoints.Find();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].transport(), "grpc");
  EXPECT_THAT(found[0].addresses(), ElementsAre("10.0.0.2:8"));
  EXPECT_THAT(found[1].addresses(), ElementsAre("10.0.0.2:7"));
  EXPECT_FALSE(endpoints.Moved());
}

TEST(EndpointsTest, AdvertisesOneTransportOnly) {
  Endpoints endpoints(kBoth, "grpc", {"mapped.example:1", "192.0.2.7:2"}, At("127.0.0.1:1"));
  const auto found = endpoints.Find();
  EXPECT_THAT(found[0].addresses(), ElementsAre("mapped.example:1", "192.0.2.7:2"));
  EXPECT_THAT(found[1].addresses(), ElementsAre("10.0.0.2:7"));
}

TEST(EndpointsTest, AutoIsTheAddressTowardsTheCoordinator) {
  Endpoints endpoints(kBoth, "grpc", {"auto", "192.0.2.7:2"}, At("127.0.0.1:1"));
  EXPECT_FALSE(endpoints.Moved());  // it has said nothing yet
  EXPECT_THAT(endpoints.Find()[0].addresses(), ElementsAre("127.0.0.1:7100", "192.0.2.7:2"));
  EXPECT_FALSE(endpoints.Moved());
}

TEST(EndpointsTest, NoWayToTheCoordinatorIsNoAddress) {
  Endpoints endpoints(kBoth, "grpc", {"auto"}, At("no-such-host.invalid:1"));
  EXPECT_THAT(endpoints.Find()[0].addresses(), IsEmpty());
  EXPECT_FALSE(endpoints.Moved());
}

TEST(EndpointsTest, FollowsTheCoordinatorAtHand) {
  std::string at_hand = "no-such-host.invalid:1";
  Endpoints endpoints(kBoth, "grpc", {"auto"}, [&at_hand] { return at_hand; });
  EXPECT_THAT(endpoints.Find()[0].addresses(), IsEmpty());
  EXPECT_EQ(endpoints.own(), "");
  at_hand = "127.0.0.1:1";
  EXPECT_THAT(endpoints.Find()[0].addresses(), ElementsAre("127.0.0.1:7100"));
  EXPECT_EQ(endpoints.own(), "127.0.0.1");
}

TEST(EndpointsTest, TheFirstCoordinatorThatThereIsAWayTo) {
  EXPECT_EQ(OwnAddressTowards(std::vector<std::string>{"no-such-host.invalid:1", "127.0.0.1:1"}),
            "127.0.0.1");
  EXPECT_EQ(OwnAddressTowards(std::vector<std::string>{"no-such-host.invalid:1"}), "");
}

}  // namespace
}  // namespace longhaul::worker
