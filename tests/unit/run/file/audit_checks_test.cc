// What audit.share needs, and what it is refused for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

constexpr char kAudited[] = R"(name: a
model: { layers: 4, hidden: 48, heads: 6, context: 8 }
data: { text: x.txt }
train: { steps: 4, microbatches: 3 }
pipeline: { stages: 2 }
links: { forward: tah, backward: none }
checkpoint: { every: 10 }
recovery: { spares: 1 }
verify: { digests: sha256 }
audit: { share: 0.02 }
)";

std::string AuditError(const std::vector<std::string>& overrides) {
  const auto spec = ParseRunSpec(kAudited, "run.yaml", overrides);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

TEST(AuditFields, SayWhichShareIsComputedAgain) {
  const auto spec = ParseRunSpec(kAudited, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->audit.share, 0.02);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  EXPECT_THAT(AuditError({"audit.share=1.5"}), HasSubstr("audit.share"));
}

TEST(AuditFields, NeedDigestsSparesStatesAndAttempts) {
  EXPECT_THAT(AuditError({"verify.digests=none"}), HasSubstr("verify.digests"));
  EXPECT_THAT(AuditError({"recovery.spares=0"}), HasSubstr("recovery.spares is 0"));
  EXPECT_THAT(AuditError({"recovery.attempts=0"}), HasSubstr("recovery.attempts is 0"));
  EXPECT_THAT(AuditError({"checkpoint.every=0", "recovery.every=0"}),
              HasSubstr("raise recovery.every or checkpoint.every"));
  EXPECT_EQ(AuditError({"checkpoint.every=0", "recovery.every=5"}), "no error");
}

TEST(AuditFields, RefuseWhatNoSpareCanComputeAgain) {
  EXPECT_THAT(AuditError({"pipeline.replicas=3"}), HasSubstr("set pipeline.replicas to 1"));
  EXPECT_THAT(AuditError({"group.tensor=2"}), HasSubstr("set group.tensor to 1"));
  EXPECT_THAT(AuditError({"pipeline.schedule=2bw", "pipeline.send_order=auto"}),
              HasSubstr("whose steps overlap"));
  EXPECT_THAT(AuditError({"model.tied=true"}), HasSubstr("matrix that two stages hold"));
  EXPECT_THAT(AuditError({"links.forward=aqsgd"}), HasSubstr("remembers of each sample"));
  EXPECT_EQ(AuditError({"audit.share=0", "pipeline.replicas=3", "recovery.spares=0"}), "no error");
}

}  // namespace
}  // namespace longhaul
