#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "run/file/run_spec_checks.h"

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

struct GroupFieldsParts {
  std::string model = "{ layers: 2, hidden: 48, heads: 6, context: 8 }";
  std::string train = "{ steps: 1, microbatches: 1 }";
  std::string rest;
};

// Parses a run whose `group` is on line 5.
class GroupFields : public ::testing::Test {
 protected:
  using Parts = GroupFieldsParts;
  static StatusOr<RunSpec> Parsed(const std::string& group, const Parts& parts) {
    return ParseRunSpec("name: a\nmodel: " + parts.model + "\ndata: { text: x.txt }\ntrain: " +
                            parts.train + "\ngroup: " + group + "\n" + parts.rest,
                        "run.yaml", {});
  }
  static std::string Error(const std::string& group, const Parts& parts = {}) {
    const auto spec = Parsed(group, parts);
    return spec.ok() ? "no error" : std::string(Message(spec.status()));
  }
};

TEST_F(GroupFields, SaysHowManyRanksShareAStage) {
  const auto spec = Parsed("{ tensor: 3 }", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->group.tensor, 3u);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
}

TEST_F(GroupFields, SaysWhatCompressesSumsOfRanks) {
  const auto spec = Parsed("{ tensor: 2, forward: taco, backward: zip }", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->group.forward, GroupCollective::kTaco);
  EXPECT_EQ(spec->group.backward, GroupCollective::kZip);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  EXPECT_THAT(Error("{ tensor: 2, forward: nccl }"),
              HasSubstr("group.forward: expected one of none, taco, zip, auto, got 'nccl'"));
  const std::string alone = Error("{ forward: taco, backward: zip }");
  EXPECT_THAT(alone, AllOf(HasSubstr("run.yaml:5:19: group.forward: a stage of one rank"),
                           HasSubstr("run.yaml:5:35: group.backward: a stage of one rank")));
}

TEST_F(GroupFields, TacoHasOptions) {
  using codec::taco::Format;
  const auto spec = Parsed(
      "{ tensor: 2, forward: 'taco:format=int8,block=64', backward: 'taco:format=e5m2' }", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->group.forward, GroupCompression({Format::kInt8, 64}));
  EXPECT_EQ(spec->group.backward, GroupCompression({Format::kE5m2, 256}));
  EXPECT_NE(spec->group.forward, GroupCollective::kTaco);
  const std::string text = ToYaml(*spec);
  EXPECT_THAT(text, HasSubstr("taco:format=int8,block=64"));
  EXPECT_THAT(text, HasSubstr("taco:format=e5m2,block=256"));
  const auto again = ParseRunSpec(text, "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  // The usual options are what the word alone says.
  const auto usual = Parsed("{ tensor: 2, collective: 'taco:block=256,format=e4m3' }", {});
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->group.forward, GroupCollective::kTaco);
  EXPECT_EQ(usual->group.backward, GroupCollective::kTaco);
  EXPECT_THAT(ToYaml(*usual), HasSubstr("forward: taco\n"));
}

TEST_F(GroupFields, AllThatIsWrongWithOptionsIsSaid) {
  const std::string error =
      Error("{ tensor: 2, forward: 'taco:format=fp4,block=48,size=1', backward: 'zip:block=64' }");
  EXPECT_THAT(
      error,
      AllOf(
          HasSubstr("run.yaml:5:30: group.forward: expected e4m3, e5m2 or int8 as the format of "
                    "taco, got 'fp4'"),
          HasSubstr("run.yaml:5:30: group.forward: expected 32, 64, 128, 256 or 512 as the block "
                    "of taco, got '48'"),
          HasSubstr("run.yaml:5:30: group.forward: expected format or block as a key of taco, got "
                    "'size'"),
          HasSubstr("group.backward: expected nothing behind zip, which has no options, got "
                    "'zip:block=64'")));
  EXPECT_THAT(Error("{ tensor: 2, forward: 'taco:' }"),
              HasSubstr("group.forward: 'taco:': after ':' come key=value pairs"));
  EXPECT_THAT(Error("{ tensor: 2, forward: 'taco:block=64,block=32' }"),
              HasSubstr("group.forward: 'taco:block=64,block=32': 'block' is given twice"));
  EXPECT_THAT(Error("{ tensor: 2, collective: 'taco:block=8' }"),
              HasSubstr("group.collective: expected 32, 64, 128, 256 or 512"));
  EXPECT_THAT(Error("{ collective: 'taco:block=64' }"),
              HasSubstr("group.collective: a stage of one rank"));
}

TEST_F(GroupFields, OneWordSaysItOfBothDirections) {
  const auto spec = Parsed("{ tensor: 2, collective: auto }", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->group.forward, GroupCollective::kAuto);
  EXPECT_EQ(spec->group.backward, GroupCollective::kAuto);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  EXPECT_EQ(Error("{ tensor: 2, collective: zip, backward: taco }"),
            "run.yaml:5:48: group.backward: group.collective says it of both directions already; "
            "leave one of the two out");
  EXPECT_EQ(Error("{ tensor: 2, forward: none, collective: none }"),
            "run.yaml:5:30: group.forward: group.collective says it of both directions already; "
            "leave one of the two out");
  EXPECT_THAT(Error("{ collective: zip }"),
              HasSubstr("run.yaml:5:22: group.collective: a stage of one rank"));
  EXPECT_EQ(Error("{ collective: none }"), "no error");
}

constexpr char kLlama[] =
    "{ family: llama, layers: 2, hidden: 48, heads: 6, kv_heads: 6, context: 10, intermediate: 48 "
    "}";

constexpr char kMoe[] =
    "{ family: moe, layers: 2, hidden: 48, heads: 6, kv_heads: 6, context: 12, experts: 6, "
    "experts_per_token: 2, expert_intermediate: 32 }";

TEST_F(GroupFields, SaysIntoHowManyPartsExpertsAreDivided) {
  for (const char* group :
       {"{ tensor: 2, expert: 2 }", "{ tensor: 6, expert: 3, sequence: true }", "{ tensor: 3 }"}) {
    const auto spec = Parsed(group, {.model = kMoe});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *spec);
  }
  EXPECT_EQ(Parsed("{ tensor: 6, expert: 3 }", {.model = kMoe})->group.expert, 3u);
  EXPECT_THAT(
      Error("{ tensor: 6, expert: 4 }", {.model = kMoe}),
      AllOf(HasSubstr("run.yaml:5:"), HasSubstr("divides the 6 ranks of group.tensor, got 4"),
            HasSubstr("divides the 6 experts of a block (model.experts), got 4")));
  EXPECT_THAT(Error("{ tensor: 2, expert: 2 }"), HasSubstr("group.expert: no block of family gpt"));
  EXPECT_THAT(Error("{ expert: 2 }", {.model = kMoe}),
              HasSubstr("group.expert: a stage of one rank"));
  EXPECT_THAT(Error("{ tensor: 2, p: 0.5 }", {.model = kMoe}),
              HasSubstr("group.p: an expert takes a token's channels whole"));
  std::string odd = kMoe;
  odd.replace(odd.find("context: 12"), 11, "context: 13");
  EXPECT_THAT(Error("{ tensor: 2 }", {.model = odd}),
              HasSubstr("each rank sends equally many of model.context's 13 tokens"));
}

TEST_F(GroupFields, SaysWhatRanksHaveOfTheHiddenState) {
  for (const char* group : {"{ tensor: 2, sequence: true }", "{ tensor: 3, p: 0.25 }"}) {
    const auto spec = Parsed(group, {.model = kLlama});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *spec);
  }
  EXPECT_TRUE(Parsed("{ tensor: 2, sequence: true }", {})->group.sequence);
  EXPECT_EQ(Parsed("{ tensor: 2, p: 0.5 }", {.model = kLlama})->group.shared_channels, 0.5);
  EXPECT_THAT(Error("{ sequence: true, p: 0.5 }"),
              AllOf(HasSubstr("group.sequence: a stage of one rank"),
                    HasSubstr("group.p: a stage of one rank")));
  EXPECT_THAT(Error("{ tensor: 3, sequence: true, p: 0.5 }", {.model = kLlama}),
              AllOf(HasSubstr("context's 10 tokens, and group.tensor 3 does not divide them"),
                    HasSubstr("group.p: channels of a rank's own are those of all tokens")));
  // Family gpt.
  EXPECT_EQ(Parsed("{ tensor: 2, p: 0.5 }", {})->group.shared_channels, 0.5);
  EXPECT_THAT(Error("{ tensor: 2, p: 1.5 }"), HasSubstr("group.p: expected"));
  const std::string from = std::string(kLlama).insert(1, " from: m,");
  // Whoever reads the folder knows whose model it is.
  EXPECT_EQ(Parsed("{ tensor: 2, p: 0.5 }", {.model = from})->group.shared_channels, 0.5);
  EXPECT_THAT(
      Error("{ tensor: 2, p: 0.5 }",
            {.model = from, .train = "{ lora: { rank: 2, alpha: 4 }, steps: 1, microbatches: 1 }"}),
      HasSubstr("group.p: adapters of LoRA add to whole sums"));
}

TEST_F(GroupFields, OneRankIsNoGroup) {
  for (const char* group : {"{ tensor: 1 }", "{}"}) {
    const auto spec = Parsed(group, {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->group, GroupSpec());
  }
}

TEST_F(GroupFields, LeavesTheNumberOfRanksToThePlan) {
  // 4 and 5 do not divide the 6 heads: the plan skips them.
  const auto spec = Parsed("{ tensor: auto, sequence: true, forward: zip }", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->group.tensor_auto);
  EXPECT_EQ(spec->group.tensor, 1u);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);

  RunSpec settled = *spec;
  settled.group = spec->group.Settled(3, 1);
  EXPECT_EQ(settled.group.tensor, 3u);
  EXPECT_FALSE(settled.group.tensor_auto);
  EXPECT_EQ(settled.group.forward, GroupCollective::kZip);
  settled.model.context = 9;
  const auto chosen = ParseRunSpec(ToYaml(settled), "chosen.yaml", {});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(*chosen, settled);
  EXPECT_EQ(spec->group.Settled(1, 1), GroupSpec());

  EXPECT_THAT(Error("{ tensor: auto, p: 0.5 }", {.model = kLlama}),
              HasSubstr("group.p: ranks with channels of their own are another model for each "
                        "number of them"));
}

std::vector<std::pair<uint32_t, uint32_t>> LeftOpen(const RunSpec& spec, uint32_t most_ranks) {
  std::vector<std::pair<uint32_t, uint32_t>> groups;
  for (const GroupSpec& group : config::GroupsLeftOpen(spec, most_ranks)) {
    EXPECT_FALSE(group.is_auto());
    groups.emplace_back(group.tensor, group.expert);
  }
  return groups;
}

TEST_F(GroupFields, LeavesThePartsOfExpertsToThePlan) {
  for (const char* group : {"{ tensor: auto, expert: auto }", "{ tensor: 6, expert: auto }",
                            "{ tensor: auto, expert: 2 }"}) {
    const auto spec = Parsed(group, {.model = kMoe});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(spec->group.is_auto());
    const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *spec);
  }
  // What divides both 4 ranks and 6 experts, and so on.
  EXPECT_THAT(LeftOpen(*Parsed("{ tensor: auto, expert: auto }", {.model = kMoe}), 4),
              ElementsAre(Pair(1, 1), Pair(2, 1), Pair(2, 2), Pair(3, 1), Pair(3, 3), Pair(4, 1),
                          Pair(4, 2)));
  EXPECT_THAT(LeftOpen(*Parsed("{ tensor: 6, expert: auto }", {.model = kMoe}), 4),
              ElementsAre(Pair(6, 1), Pair(6, 2), Pair(6, 3), Pair(6, 6)));
  EXPECT_THAT(LeftOpen(*Parsed("{ tensor: auto, expert: 2 }", {.model = kMoe}), 3),
              ElementsAre(Pair(1, 2), Pair(2, 2), Pair(3, 2)));
  EXPECT_THAT(LeftOpen(*Parsed("{ tensor: 2 }", {}), 4), ElementsAre(Pair(2, 1)));

  EXPECT_EQ(Error("{ tensor: 2, expert: auto }"),
            "run.yaml:5:29: group.expert: no block of family gpt has experts that parts could be "
            "made of; leave expert out, or choose family moe");
  EXPECT_THAT(Error("{ tensor: auto, expert: 2 }"),
              HasSubstr("no block of family gpt has experts that 2 parts could be made of"));
  EXPECT_THAT(Error("{ tensor: auto, expert: 4 }", {.model = kMoe}),
              HasSubstr("divides the 6 experts of a block (model.experts), got 4"));
  EXPECT_THAT(Error("{ expert: auto }", {.model = kMoe}),
              HasSubstr("group.expert: a stage of one rank"));
  EXPECT_THAT(Error("{ tensor: 2, expert: all }", {.model = kMoe}),
              HasSubstr("group.expert: expected a whole number from 1 to 64 or auto, got 'all'"));
}

TEST_F(GroupFields, AreFromOneTo64) {
  EXPECT_EQ(Error("{ tensor: 0 }"),
            "run.yaml:5:18: group.tensor: expected a whole number from 1 to 64 or auto, got '0'");
  EXPECT_THAT(Error("{ tensor: 65 }"), HasSubstr("from 1 to 64 or auto, got '65'"));
  EXPECT_THAT(Error("{ tensors: 2 }"), HasSubstr("run.yaml:5:10: unknown key 'tensors'"));
}

TEST_F(GroupFields, HeadsThatRanksDoNotDivideAreRefusedOnceEach) {
  EXPECT_EQ(Error("{ tensor: 4 }"),
            "run.yaml:5:18: group.tensor: h.#.attn.qkv.weight: expected a number of ranks that "
            "divides its 6 heads, got 4; choose another size of the group");
  const Parts llama = {
      .model =
          "{ family: llama, layers: 2, hidden: 48, heads: 6, kv_heads: 3, context: 8, "
          "intermediate: 50 }"};
  const std::string error = Error("{ tensor: 4 }", llama);
  EXPECT_THAT(error, AllOf(HasSubstr("divides its 6 heads, got 4"),
                           HasSubstr("is a multiple of its 3 heads of keys and values, got 4"),
                           HasSubstr("divides its 50 channels, got 4")));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 2);
}

TEST_F(GroupFields, KvHeadsMayBeFewerThanRanks) {
  EXPECT_EQ(Error("{ tensor: 6 }",
                  {.model = "{ family: llama, layers: 2, hidden: 48, heads: 6, kv_heads: 3, "
                            "context: 8, intermediate: 48 }"}),
            "no error");
}

TEST_F(GroupFields, MuonPutsTogetherWhatRanksShareButNotChannelsOfTheirOwn) {
  const Parts muon = {.train = "{ optimizer: { kind: muon }, steps: 1, microbatches: 1 }"};
  for (const char* group : {"{ tensor: 2 }", "{ tensor: 2, sequence: true }", "{ tensor: auto }"}) {
    EXPECT_EQ(Error(group, muon), "no error");
  }
  EXPECT_THAT(Error("{ tensor: 2, p: 0.5 }", muon),
              HasSubstr("run.yaml:5:24: group.p: muon (train.optimizer.kind) updates whole "
                        "matrices"));
}

TEST_F(GroupFields, AReplayHasTheTimesOfOneGroup) {
  const Parts replay = {.rest =
                            "replay: { source: a card, layers: { block_forward: 1ms, "
                            "block_backward: 2ms }, codecs: real }\n"
                            "validation: { every: 0 }\n"};
  EXPECT_EQ(Error("{ tensor: 2 }", replay), "no error");
  EXPECT_EQ(Error("{ tensor: 2, p: 0.5 }", replay), "no error");
  EXPECT_THAT(Error("{ tensor: auto }", replay),
              HasSubstr("run.yaml:5:18: group.tensor: a replay has the times of the group that "
                        "they were measured with"));
}

TEST_F(GroupFields, ATiedMatrixIsSharedInOneStageAndInTwo) {
  for (const char* stages : {"1", "2"}) {
    EXPECT_EQ(Error("{ tensor: 2 }",
                    {.model = "{ layers: 2, hidden: 48, heads: 6, context: 8, tied: true }",
                     .rest = "pipeline: { stages: " + std::string(stages) + " }\n"}),
              "no error");
  }
}

}  // namespace
}  // namespace longhaul
