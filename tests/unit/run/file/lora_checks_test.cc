#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/file/run_spec_checks.h"
#include "run/model/family.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Parses a run over a published model. Its `train.lora` is on line 4, from column 12.
class LoraFields : public ::testing::Test {
 protected:
  static StatusOr<RunSpec> Parsed(const std::string& lora, const std::string& model = kModel,
                                  const std::vector<std::string>& overrides = {},
                                  const FindAdapters& find_adapters = {}) {
    return ParseRunSpec("name: a\nmodel: " + model + "\ndata: { text: x.txt }\ntrain: { lora: " +
                            lora + ", steps: 1, microbatches: 1 }\n",
                        "run.yaml", overrides, {}, {}, find_adapters);
  }
  static RunSpec Good(const std::string& lora, const std::string& model = kModel,
                      const std::vector<std::string>& overrides = {}) {
    const auto spec = Parsed(lora, model, overrides);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.value_or(RunSpec{});
  }
  static std::string Error(const std::string& lora, const std::string& model = kModel) {
    const auto spec = Parsed(lora, model);
    return spec.ok() ? "no error" : std::string(Message(spec.status()));
  }
  static constexpr char kModel[] =
      "{ family: llama, layers: 2, hidden: 8, heads: 2, context: 8, intermediate: 8, from: m }";
  static constexpr char kGpt[] = "{ layers: 2, hidden: 8, heads: 2, context: 8, from: m }";
};

TEST_F(LoraFields, SaysRankAlphaAndTargets) {
  const RunSpec spec = Good("{ rank: 8, alpha: 12, targets: [q_proj, mlp.up_proj] }");
  ASSERT_TRUE(spec.model.lora);
  EXPECT_EQ(spec.model.lora->rank, 8u);
  EXPECT_EQ(spec.model.lora->alpha, 12);
  EXPECT_EQ(spec.model.lora->scale(), 1.5);
  EXPECT_THAT(spec.model.lora->targets, ElementsAre("q_proj", "mlp.up_proj"));
}

TEST_F(LoraFields, LeftOutTheyArePeftsUsualOnes) {
  const RunSpec spec = Good("{ rank: 4 }");
  EXPECT_EQ(spec.model.lora->alpha, 8);
  EXPECT_THAT(spec.model.lora->targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(Good("{ rank: 4 }", kGpt).model.lora->targets, ElementsAre("c_attn"));
  EXPECT_THAT(Good("{ rank: 4, targets: all-linear }", kGpt).model.lora->targets,
              ElementsAre("c_attn", "c_proj", "c_fc"));
  EXPECT_EQ(Good("{ rank: 4, targets: [all-linear] }").model.lora->targets.size(), 7u);
  EXPECT_THAT(Good("{ rank: 4, targets: o_proj }").model.lora->targets, ElementsAre("o_proj"));
}

TEST_F(LoraFields, OverridesSayMore) {
  const RunSpec spec = Good("{ rank: 4, targets: [k_proj] }", kModel, {"train.lora.rank=2"});
  EXPECT_EQ(spec.model.lora->rank, 2u);
  EXPECT_EQ(spec.model.lora->alpha, 4);
  EXPECT_THAT(spec.model.lora->targets, ElementsAre("k_proj"));
}

TEST_F(LoraFields, AreInTheTextOfTheRunAlone) {
  for (const char* lora : {"{ rank: 4 }", "{ rank: 3, alpha: 1.5, targets: all-linear }"}) {
    const RunSpec spec = Good(lora);
    const auto again = ParseRunSpec(ToYaml(spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, spec);
  }
  RunSpec without = Good("{ rank: 4 }");
  without.model.lora.reset();
  EXPECT_THAT(ToYaml(without), HasSubstr("  # lora:\n"));
}

// Embedding and head of a tied model do not change, so they may lie on several stages.
TEST_F(LoraFields, TiedModelsMayHaveSeveralStages) {
  std::string model = kModel;
  model.insert(model.size() - 1, ", tied: true ");
  const RunSpec spec = Good("{ rank: 4 }", model, {"pipeline.stages=2"});
  EXPECT_TRUE(spec.model.tied);
  EXPECT_TRUE(spec.model.lora);
}

TEST_F(LoraFields, WhatCannotBe) {
  EXPECT_EQ(Error("{ rank: 4 }", "{ layers: 2, hidden: 8, heads: 2, context: 8 }"),
            "run.yaml:4:16: train.lora: adapters are trained over a published model, and there is "
            "no model.from; name its folder there, or leave lora out");
  EXPECT_EQ(Error("{ alpha: 4 }"),
            "run.yaml:4:16: the key 'train.lora.rank' is missing; expected a whole number from 1 "
            "to 4096, often 8 or 16");
  EXPECT_EQ(Error("{ rank: 0 }"),
            "run.yaml:4:24: train.lora.rank: expected a whole number from 1 to 4096, got '0'");
  EXPECT_EQ(Error("{ rank: 4, targets: [q_proj, c_attn] }"),
            "run.yaml:4:36: train.lora.targets: no block of family llama has a module 'c_attn'; "
            "expected all-linear, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
            "down_proj");
  EXPECT_EQ(Error("{ rank: 4, targets: [attn.qkv] }", kGpt),
            "run.yaml:4:36: train.lora.targets: no block of family gpt has a module 'attn.qkv'; "
            "expected all-linear, or some of c_attn, c_proj, c_fc");
  EXPECT_THAT(Error("{ rank: 4, targets: [lm_head] }"), HasSubstr("has a module 'lm_head'"));
  EXPECT_THAT(Error("{ rank: 4, targets: [q_proj, q_proj] }"),
              HasSubstr("train.lora.targets: 'q_proj' stands there twice"));
  EXPECT_THAT(Error("{ rank: 4, targets: [] }"), HasSubstr("got an empty list"));
  EXPECT_THAT(Error("{ rank: 4, alpha: 0 }"),
              HasSubstr("train.lora.alpha: expected a number above 0"));
  EXPECT_THAT(Error("{ rank: 4, dropout: 1 }"),
              HasSubstr("train.lora.dropout: expected a number from 0 and below 1, got '1'"));
  EXPECT_THAT(Error("{ rank: 4, rslora: 2 }"), HasSubstr("train.lora.rslora: expected true"));
  EXPECT_THAT(Error("8"), HasSubstr("train.lora: expected a mapping with from, rank, alpha, "
                                    "targets, rslora, dropout, quantize_base"));
  EXPECT_THAT(Error("{ rank: 4, quantize_base: fp4 }"),
              HasSubstr("train.lora.quantize_base: expected one of none, nf4, int8, got 'fp4'"));
  EXPECT_THAT(Error("{ rank: 4, load_in_4bit: true }"), HasSubstr("quantize_base: nf4"));
  EXPECT_THAT(Error("{ use_rslora: true, rank: 1 }"), HasSubstr("train.lora.rslora"));
}

TEST_F(LoraFields, TheScaleMayBeByTheRoot) {
  EXPECT_EQ(Good("{ rank: 16, alpha: 8 }").model.lora->scale(), 0.5);
  const LoraSpec lora = *Good("{ rank: 16, alpha: 8, rslora: true, dropout: 0.05 }").model.lora;
  EXPECT_TRUE(lora.rslora);
  EXPECT_EQ(lora.scale(), 2);
  EXPECT_EQ(lora.dropout, 0.05);
}

TEST_F(LoraFields, TheBaseMayBeQuantized) {
  EXPECT_EQ(Good("{ rank: 4 }").model.lora->quantize_base, QuantizeBase::kNone);
  const RunSpec spec = Good("{ rank: 4, quantize_base: nf4 }");
  EXPECT_EQ(spec.model.lora->quantize_base, QuantizeBase::kNf4);
  const auto again = ParseRunSpec(ToYaml(spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, spec);
}

// A folder whose adapters have rank 8.
class LoraFrom : public LoraFields {
 protected:
  static StatusOr<LoraSpec> Find(const std::string& folder, const ModelSpec& model) {
    EXPECT_EQ(folder, "adapters");
    EXPECT_EQ(model.layers, 2u);
    return LoraSpec{
        .rank = 8, .alpha = 4, .rslora = true, .dropout = 0.1, .targets = {"v_proj", "q_proj"}};
  }
  static std::string ErrorOf(const std::string& lora, const FindAdapters& find = Find) {
    const auto spec = Parsed(lora, kModel, {}, find);
    return spec.ok() ? "no error" : std::string(Message(spec.status()));
  }
};

TEST_F(LoraFrom, FillsInWhatTheFileLeavesOut) {
  const auto spec = Parsed("{ from: adapters }", kModel, {}, Find);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->weights.adapters, "adapters");
  EXPECT_EQ(*spec->model.lora, *Find("adapters", spec->model));
  // The dropout is of the training that begins.
  const auto more = Parsed("{ from: adapters, rank: 8, targets: [q_proj, v_proj], dropout: 0 }",
                           kModel, {}, Find);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->model.lora->dropout, 0);
  EXPECT_EQ(more->model.lora->alpha, 4);
  EXPECT_EQ(ErrorOf("{ from: adapters, targets: [q_proj, v_proj] }"), "no error");
  // How the base is stored is no property of the adapters.
  const auto stored = Parsed("{ from: adapters, quantize_base: int8 }", kModel, {}, Find);
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->model.lora->quantize_base, QuantizeBase::kInt8);
}

TEST_F(LoraFrom, WhatTheFileSaysMustAgree) {
  const std::string error =
      ErrorOf("{ from: adapters, rank: 4, alpha: 5, rslora: false, targets: all-linear }");
  EXPECT_THAT(error, HasSubstr("run.yaml:4:40: train.lora.rank: expected 8, as the adapters in "
                               "adapters have it, got 4; leave rank out, or leave "
                               "train.lora.from out to begin with new adapters"));
  EXPECT_THAT(error, HasSubstr("train.lora.alpha: expected 4"));
  EXPECT_THAT(error, HasSubstr("train.lora.rslora: expected true"));
  EXPECT_THAT(error, HasSubstr("train.lora.targets: expected [v_proj, q_proj], as the adapters"));
}

TEST_F(LoraFrom, ProblemsOfTheFolderAreThoseOfTheKey) {
  EXPECT_EQ(ErrorOf("{ from: adapters }",
                    [](const std::string&, const ModelSpec&) -> StatusOr<LoraSpec> {
                      return InvalidArgument("bias: no\nuse_dora: no");
                    }),
            "run.yaml:4:24: train.lora.from: bias: no\n"
            "run.yaml:4:24: train.lora.from: use_dora: no");
}

// The coordinator and workers have no folder: the CLI sends them all values.
TEST_F(LoraFrom, TravelsAsAnOverride) {
  const RunSpec spec = *Parsed("{ from: adapters }", kModel, {}, Find);
  const std::string section = SectionOverride("train.lora", spec);
  EXPECT_EQ(section,
            "train.lora={ from: \"adapters\", rank: 8, alpha: 4, targets: [\"v_proj\", "
            "\"q_proj\"], rslora: true, dropout: 0.1, quantize_base: none }");
  const auto there = Parsed("{ from: adapters }", kModel, {section});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(*there, spec);
  const auto again = ParseRunSpec(ToYaml(spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, spec);
}

}  // namespace
}  // namespace longhaul
