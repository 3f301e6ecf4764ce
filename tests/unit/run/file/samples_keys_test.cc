// The section "samples" of a run file.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRun[] = R"(name: texts
model: { layers: 2, hidden: 16, heads: 2, context: 64 }
data: { text: [text.txt] }
train: { steps: 3, microbatches: 2 }
)";

StatusOr<RunSpec> ParseSamples(const std::string& samples) {
  return ParseRunSpec(std::string(kRun) + "samples: " + samples + "\n", "run.yaml", {});
}
std::string ProblemOf(const std::string& samples) {
  return std::string(Message(ParseSamples(samples).status()));
}

TEST(SamplesKeys, AreReadAndWritten) {
  const StatusOr<RunSpec> spec = ParseSamples(
      R"({ every: 10, prompts: ["Once\nupon:\t\"a\"", two], tokens: 8, temperature: 0.5, seed: 3 })");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->samples.every, 10u);
  EXPECT_THAT(spec->samples.prompts, ElementsAre("Once\nupon:\t\"a\"", "two"));
  EXPECT_EQ(spec->samples.temperature, 0.5);
  const StatusOr<RunSpec> again = ParseRunSpec(ToYaml(*spec), "stored", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
}

TEST(SamplesKeys, WhatTheCliFillsInTravelsAsAnOverride) {
  StatusOr<RunSpec> spec = ParseSamples("{ every: 10, prompts: [one], tokens: 8 }");
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->samples.ids = {{7, 12}};
  spec->samples.stop = {2};
  spec->samples.pieces_sha256 = std::string(64, 'a');
  const StatusOr<RunSpec> there =
      ParseRunSpec(std::string(kRun), "run.yaml", {SectionOverride("samples", *spec)});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->samples, spec->samples);
}

TEST(SamplesKeys, AreOffByDefault) {
  const StatusOr<RunSpec> spec = ParseRunSpec(kRun, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->samples, SamplesSpec());
}

TEST(SamplesKeys, WhatCannotBeIsToldAtSubmit) {
  EXPECT_THAT(ProblemOf("{ every: 10 }"), HasSubstr("expected samples.prompts beside it"));
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [one], tokens: 257 }"), HasSubstr("from 1 to 256"));
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [one], tokens: 62 }"),
              HasSubstr("samples.prompts: expected prompts of 1 to 2 tokens"));
  for (const char* prompt : {R"("")", R"("\x1b[2J")", "{ a: b }"}) {
    EXPECT_THAT(ProblemOf(fmt::format("{{ every: 10, prompts: [{}] }}", prompt)),
                HasSubstr("texts of 1 to 4096 bytes"));
  }
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, "
                        "16, 17] }"),
              HasSubstr("1 to 16 texts"));
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [one], ids: [[1], [2]] }"),
              HasSubstr("the ids of 1 prompts, got those of 2"));
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [one], ids: [[-1]] }"),
              HasSubstr("lists of token ids"));
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [one], ids: [[]] }"), HasSubstr("got one of 0"));
  EXPECT_THAT(ProblemOf("{ every: 10, prompts: [one], pieces: no }"), HasSubstr("64 hexadecimal"));
}

}  // namespace
}  // namespace longhaul
