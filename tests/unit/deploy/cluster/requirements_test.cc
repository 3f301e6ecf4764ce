#include "deploy/cluster/requirements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kBoth = 1ull << CAP_NET_ADMIN | 1ull << CAP_SYS_ADMIN;

std::string Missing(const Machine& machine) {
  return std::string(Message(CheckRequirements(machine)));
}

TEST(ClusterRequirements, NothingIsMissing) {
  EXPECT_TRUE(CheckRequirements({kBoth, true, true, true}).ok());
  // Rights count, not the user's name.
  EXPECT_TRUE(CheckRequirements({kBoth, false, true, true}).ok());
}

TEST(ClusterRequirements, UserIsSentToSudo) {
  EXPECT_THAT(Missing({0, false, true, true}),
              AllOf(HasSubstr("CAP_NET_ADMIN"), HasSubstr("CAP_SYS_ADMIN"), HasSubstr("sudo"),
                    Not(HasSubstr("docker")), Not(HasSubstr("iproute2"))));
}

TEST(ClusterRequirements, RootInAContainerIsSentToDockersOptions) {
  EXPECT_THAT(Missing({1ull << CAP_NET_ADMIN, true, true, true}),
              AllOf(HasSubstr("--cap-add SYS_ADMIN"), Not(HasSubstr("CAP_NET_ADMIN (")),
                    Not(HasSubstr("sudo"))));
}

TEST(ClusterRequirements, EverythingMissingIsNamedAtOnce) {
  EXPECT_THAT(Missing({0, false, false, false}),
              AllOf(HasSubstr("sudo"), HasSubstr("ip and tc"), HasSubstr("iproute2")));
  EXPECT_THAT(Missing({kBoth, true, true, false}), HasSubstr("the program tc"));
}

}  // namespace
}  // namespace longhaul
