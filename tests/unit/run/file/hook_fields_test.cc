// The run file's section `hooks`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/run/file/run_texts.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string With(const std::string& hooks) {
  return std::string(kMinimal) + "hooks: " + hooks + "\n";
}

TEST(HookFields, AreReadAndWrittenBack) {
  const auto spec = ParseRunSpec(
      With(R"({ on_checkpoint: [python3, "a \"b\".py", "", 7], timeout: 90s, merged: true })"),
      "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->hooks.on_checkpoint, ElementsAre("python3", "a \"b\".py", "", "7"));
  EXPECT_EQ(spec->hooks.timeout, absl::Seconds(90));
  EXPECT_TRUE(spec->hooks.merged);
  const auto again = ParseRunSpec(ToYaml(*spec), "run.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  EXPECT_TRUE(ParseRunSpec(kMinimal, "run.yaml", {})->hooks.on_checkpoint.empty());
}

TEST(HookFields, WhatCannotBe) {
  for (const char* program : {"python3 evaluate.py", "[]", "[[a]]", "[\"\"]", "[\"a\\0b\"]"}) {
    EXPECT_THAT(ErrorOf(With(std::string("{ on_checkpoint: ") + program + " }")),
                HasSubstr("hooks.on_checkpoint: expected a list of a program"))
        << program;
  }
  EXPECT_THAT(ErrorOf(With("{ timeout: 1m }")), HasSubstr("hooks.timeout"));
  EXPECT_THAT(ErrorOf(With("{ on_checkpoint: [a], timeout: 10ms }")), HasSubstr("hooks.timeout"));
  EXPECT_THAT(ErrorOf(With("{ on_checkpoint: [a] }") +
                      "replay: { source: x, layers: { block_forward: 1ms, block_backward: 1ms }, "
                      "codecs: real }"),
              HasSubstr("hooks.on_checkpoint: a replay has no parameters"));
}

}  // namespace
}  // namespace longhaul
