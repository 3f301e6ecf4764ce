// The run file's section `replay`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "run/file/run_spec_checks.h"

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kRun = R"(name: xl
model: { layers: 8, hidden: 64, heads: 4, context: 64 }
data: { text: [a.txt] }
train: { steps: 2, microbatches: 4 }
links: { forward: tah, backward: "fixed:bits=6" }
)";
constexpr std::string_view kReplay = R"(replay:
  source: "one \"H200\" a stage"
  layers: { embedding_forward: 10us, embedding_backward: 20us, block_forward: 0.867ms, block_backward: 1733us, head_forward: 1ms, head_backward: 2ms, optimizer: 3s }
  codecs: measured
  codec_times: { tah: { encode: 24us, decode: 8500ns }, fixed: { encode: 0us, decode: 1ms } }
  memory: 80GiB
)";

StatusOr<RunSpec> Parse(std::string_view replay, const std::vector<std::string>& overrides = {}) {
  return ParseRunSpec(std::string(kRun) + std::string(replay), "run.yaml", overrides);
}

std::string ErrorOf(std::string_view replay, const std::vector<std::string>& overrides = {}) {
  const auto spec = Parse(replay, overrides);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

TEST(Replay, IsOffWithoutTheSection) {
  EXPECT_FALSE(Parse("")->replay.has_value());
}

TEST(Replay, ReadsEveryKeyAndWritesItBack) {
  const auto spec = Parse(kReplay);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const ReplaySpec& replay = *spec->replay;
  EXPECT_EQ(replay.source, "one \"H200\" a stage");
  EXPECT_EQ(replay.block_forward, absl::Microseconds(867));
  EXPECT_EQ(replay.block_backward, absl::Microseconds(1733));
  EXPECT_EQ(replay.optimizer, absl::Seconds(3));
  EXPECT_FALSE(replay.real_codecs);
  EXPECT_EQ(replay.memory_bytes, uint64_t{80} << 30);
  ASSERT_NE(replay.TimesOf("tah:p=0.5"), nullptr);
  EXPECT_EQ(replay.TimesOf("tah:p=0.5")->decode, absl::Nanoseconds(8500));
  EXPECT_EQ(replay.TimesOf("gauss"), nullptr);
  // Nothing is learned, so nothing is validated unless somebody asks for it.
  EXPECT_EQ(spec->validation.every, 0u);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
}

TEST(Replay, OverridesChangeSingleKeys) {
  const auto spec = Parse(kReplay, {"replay.codecs=real", "replay.layers.optimizer=5ms",
                                    "replay.codec_times.tah={encode: 1ms, decode: 2ms}"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->replay->real_codecs);
  EXPECT_EQ(spec->replay->optimizer, absl::Milliseconds(5));
  EXPECT_EQ(spec->replay->block_forward, absl::Microseconds(867));
  EXPECT_EQ(spec->replay->TimesOf("tah")->encode, absl::Milliseconds(1));
  const auto one = Parse(kReplay, {"replay.codec_times.tah.encode=1ms"});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->replay->TimesOf("tah")->encode, absl::Milliseconds(1));
  EXPECT_EQ(one->replay->TimesOf("tah")->decode, absl::Nanoseconds(8500));
  EXPECT_EQ(spec->replay->TimesOf("fixed")->decode, absl::Milliseconds(1));
}

// One that nobody has written has a size and times all the same.
TEST(Replay, AClassOfPythonHasTimes) {
  const std::string forward = "links.forward=\"python:any:Codec,bits=3\"";
  EXPECT_THAT(ErrorOf(kReplay, {forward}),
              HasSubstr("replay.codec_times: expected times of 'python'"));
  const auto spec =
      Parse(kReplay, {forward, "replay.codec_times.python={encode: 300us, decode: 200us}"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->replay->TimesOf(spec->links.codecs.forward)->encode, absl::Microseconds(300));
}

TEST(Replay, SaysWhatIsMissing) {
  EXPECT_THAT(ErrorOf("replay: { codecs: real }\n"),
              AllOf(HasSubstr("run.yaml:6:9: replay.source: expected a text"),
                    HasSubstr("replay.layers.block_forward: expected the measured time"),
                    HasSubstr("replay.layers.block_backward: expected the measured time")));
  EXPECT_THAT(ErrorOf(kReplay, {"links.backward=gauss"}),
              HasSubstr("replay.codec_times: expected times of 'gauss', the codec of "
                        "links.backward"));
  EXPECT_EQ(ErrorOf(kReplay, {"links.backward=gauss", "replay.codecs=real"}), "no error");
  EXPECT_THAT(ErrorOf(kReplay, {"links.forward=predict/gauss"}), HasSubstr("add predict: {"));
  EXPECT_THAT(ErrorOf(kReplay, {"links.workers.w1.forward=gauss"}), HasSubstr("'gauss'"));
  EXPECT_THAT(ErrorOf(kReplay, {"replay.codec_times={none: {encode: 1us}}"}),
              HasSubstr("the key 'replay.codec_times.none.decode' is missing"));
}

TEST(Replay, SaysWhatCannotBe) {
  EXPECT_THAT(
      ErrorOf(kReplay, {"model.tied=true"}),
      HasSubstr("model.tied: a replay has no gradient that the first and the last of several "
                "stages could sum"));
  EXPECT_THAT(ErrorOf(kReplay, {"validation.every=5"}),
              HasSubstr("validation.every: a replay learns nothing"));
  EXPECT_THAT(ErrorOf(kReplay, {"replay.codec_times={\"tah:p=0.5\": {encode: 1us, decode: 1us}}"}),
              HasSubstr("expected a codec without parameters, got 'tah:p=0.5'"));
  EXPECT_THAT(ErrorOf(kReplay, {"replay.codec_times={zap: {encode: 1us, decode: 1us}}"}),
              HasSubstr("got 'zap'; unknown codec"));
  EXPECT_THAT(ErrorOf(kReplay, {"replay.codec_times=5"}),
              HasSubstr("expected a mapping of codecs"));
  EXPECT_THAT(ErrorOf(kReplay, {"replay.layers.block_forward=-1ms"}),
              HasSubstr("replay.layers.block_forward"));
  EXPECT_THAT(ErrorOf(kReplay, {"replay.codecs=fast"}), HasSubstr("measured, real"));
  EXPECT_THAT(ErrorOf("replay: 7\n"), HasSubstr("expected a mapping"));
  EXPECT_THAT(ErrorOf("replay: { layer: {} }\n"), HasSubstr("did you mean 'layers'"));
}

}  // namespace
}  // namespace longhaul
