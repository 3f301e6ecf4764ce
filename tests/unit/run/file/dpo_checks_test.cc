// `train.dpo`: what it implies, and what a run file cannot have beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/boundary/boundary_shape.h"
#include "run/file/run_spec.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

// "train.dpo" is on line 4.
StatusOr<RunSpec> Parsed(const std::string& dpo, const std::vector<std::string>& overrides = {}) {
  return ParseRunSpec(
      "name: a\nmodel: { family: llama, layers: 2, hidden: 64, heads: 4, intermediate: 96, "
      "context: "
      "32, from: base }\ndata: { sets: [pairs] }\ntrain: { dpo: " +
          dpo + ", lora: { rank: 8 }, steps: 1, microbatches: 2, microbatch_size: 3 }\n",
      "run.yaml", overrides);
}

std::string Error(const std::string& dpo, const std::vector<std::string>& overrides = {}) {
  const auto spec = Parsed(dpo, overrides);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

TEST(Dpo, HasTheUsualValuesAndKeepsDocumentsApart) {
  const auto spec = Parsed("{}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train.dpo, DpoSpec());
  EXPECT_EQ(spec->train.dpo->beta, 0.1);
  EXPECT_TRUE(spec->data.mask_documents);
  const auto other = Parsed("{ beta: 0.5, label_smoothing: 0.2 }");
  EXPECT_EQ(other->train.dpo->beta, 0.5);
  EXPECT_EQ(other->train.dpo->label_smoothing, 0.2);
  for (const auto& one : {*spec, *other}) {
    const auto again = ParseRunSpec(ToYaml(one), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, one);
  }
}

TEST(Dpo, DoublesTheSamplesOfActivationsAlone) {
  const auto spec = Parsed("{}");
  EXPECT_EQ(BoundaryShape(*spec).samples, 6u);
  EXPECT_EQ(BoundaryShape(*spec, Direction::kBackward).samples, 3u);
  EXPECT_EQ(SliceShape(*spec).samples, 6u);
  RunSpec without = *spec;
  without.train.dpo.reset();
  EXPECT_EQ(BoundaryShape(without).samples, 3u);
  EXPECT_EQ(BoundaryShape(without), BoundaryShape(without, Direction::kBackward));
}

TEST(Dpo, MayBeCutIntoSlices) {
  const auto spec = Parsed("{}", {"pipeline.slices=2"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(SliceShape(*spec).samples, 6u);
  EXPECT_EQ(SliceShape(*spec).tokens, 16u);
}

TEST(Dpo, IsRefusedWithAReason) {
  EXPECT_THAT(Error("{ beta: 0 }"), HasSubstr("run.yaml:4:23: train.dpo.beta: expected"));
  EXPECT_THAT(Error("{ label_smoothing: 0.5 }"), HasSubstr("train.dpo.label_smoothing: expected"));
  EXPECT_THAT(Error("{ betta: 1 }"), HasSubstr("unknown key 'betta'; did you mean 'beta'?"));
  EXPECT_THAT(Error("{}", {"data.mask=none"}), HasSubstr("data.mask: expected document, got none"));
  const auto without_lora = ParseRunSpec(
      "name: a\nmodel: { layers: 2, hidden: 64, heads: 4, context: 32 }\ndata: { text: a.txt }\n"
      "train: { dpo: {}, steps: 1, microbatches: 2 }\n",
      "run.yaml", {});
  EXPECT_THAT(std::string(Message(without_lora.status())),
              HasSubstr("train.dpo: the reference of the loss is the model without adapters"));
  EXPECT_THAT(std::string(Message(without_lora.status())),
              HasSubstr("train.dpo: data.text has no pairs of answers"));
}

}  // namespace
}  // namespace longhaul
