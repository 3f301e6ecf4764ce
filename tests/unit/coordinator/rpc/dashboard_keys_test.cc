#include "coordinator/rpc/dashboard_keys.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace longhaul::coordinator {
namespace {

const absl::Time kKeyTime = absl::FromUnixSeconds(1'800'000'000);

Caller Ulla() {
  return {.member = Member{"ulla", Role::kUser, ""},
          .until = absl::InfiniteFuture(),
          .key_sha256 = std::string(64, 'a')};
}

TEST(DashboardKeysTest, AKeySaysWhoseItIs) {
  const DashboardKeys keys(std::string(32, 's'));
  const auto owner = keys.Check(keys.Make(Ulla(), kKeyTime + absl::Hours(1)), kKeyTime);
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(owner->member, Ulla().member);
  EXPECT_EQ(owner->key_sha256, Ulla().key_sha256);
  const auto nobody = keys.Check(keys.Make(Caller(), kKeyTime + absl::Hours(1)), kKeyTime);
  ASSERT_TRUE(nobody.ok()) << nobody.status();
  EXPECT_FALSE(nobody->member.has_value());
}

TEST(DashboardKeysTest, AKeyEnds) {
  const DashboardKeys keys(std::string(32, 's'));
  const std::string key = keys.Make(Ulla(), kKeyTime + absl::Seconds(10));
  EXPECT_TRUE(keys.Check(key, kKeyTime + absl::Seconds(9)).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(keys.Check(key, kKeyTime + absl::Seconds(10)).status()));
}

// Neither made up, nor another's, nor changed in a single character.
TEST(DashboardKeysTest, OtherKeysAreNone) {
  const DashboardKeys keys(std::string(32, 's')), others(std::string(32, 't'));
  const std::string key = keys.Make(Ulla(), kKeyTime + absl::Hours(1));
  EXPECT_FALSE(others.Check(key, kKeyTime).ok());
  std::set<std::string> texts = {"",
                                 "lhd1.",
                                 "lhd1..",
                                 "lhd1.a",
                                 "Bearer",
                                 key + ".a",
                                 key.substr(0, key.size() - 2),
                                 std::string(5000, 'a')};
  for (size_t i = 0; i < key.size(); ++i) {
    std::string changed = key;
    changed[i] = changed[i] == 'B' ? 'C' : 'B';
    texts.insert(changed);
  }
  texts.erase(key);
  for (const std::string& text : texts) {
    const auto owner = keys.Check(text, kKeyTime);
    // The last character of a text in base 64 has bits that mean nothing.
    if (owner.ok()) {
      EXPECT_EQ(text.substr(0, text.size() - 2), key.substr(0, key.size() - 2)) << text;
      EXPECT_EQ(owner->member, Ulla().member);
    }
  }
}

}  // namespace
}  // namespace longhaul::coordinator
