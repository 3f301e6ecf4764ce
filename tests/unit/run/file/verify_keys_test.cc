// The section "verify": its words, what applies when, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

constexpr char kVerified[] = R"(name: a
model: { layers: 4, hidden: 48, heads: 6, context: 8 }
data: { text: x.txt }
train: { steps: 4, microbatches: 3 }
verify: { digests: xxh3, state: 10, differs: repeat, keep: 1MiB, outliers: warn }
)";

std::string VerifyError(const std::vector<std::string>& overrides) {
  const auto spec = ParseRunSpec(kVerified, "run.yaml", overrides);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

TEST(VerifyFields, AreReadAndWritten) {
  const auto spec = ParseRunSpec(kVerified, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->verify, (VerifySpec{.digests = DigestKind::kXxh3,
                                      .state = 10,
                                      .differs = Contradicted::kRepeat,
                                      .outliers = Implausible::kWarn,
                                      .keep_bytes = 1 << 20}));
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->verify, spec->verify);
}

TEST(VerifyFields, SayWhenStatesHaveDigests) {
  VerifySpec verify{.digests = DigestKind::kSha256, .state = 3};
  EXPECT_TRUE(verify.DigestsStateOf(3));
  EXPECT_FALSE(verify.DigestsStateOf(4));
  verify.state = 0;
  EXPECT_FALSE(verify.DigestsStateOf(3));
  EXPECT_FALSE((VerifySpec{.state = 1}).DigestsStateOf(3)) << "without digests";
}

TEST(VerifyFields, RefuseUnknownWords) {
  EXPECT_THAT(VerifyError({"verify.digests=md5"}), HasSubstr("none, xxh3, sha256"));
  EXPECT_THAT(VerifyError({"verify.outliers=maybe"}), HasSubstr("off, warn, repeat, evict"));
}

TEST(VerifyFields, WhatTrainsAgainNeedsAttempts) {
  EXPECT_THAT(VerifyError({"recovery.attempts=0"}),
              HasSubstr("verify.differs: repeat trains steps again, and recovery.attempts 0"));
  EXPECT_EQ(VerifyError({"recovery.attempts=0", "verify.differs=warn"}), "no error");
  EXPECT_THAT(VerifyError({"recovery.attempts=0", "verify.differs=warn", "verify.outliers=evict"}),
              HasSubstr("set verify.outliers to warn"));
}

}  // namespace
}  // namespace longhaul
