#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "run/file/run_spec.h"
#include "run/file/run_spec_checks.h"

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct ReplicaFieldsParts {
  std::string model = "{ layers: 2, hidden: 48, heads: 6, context: 8 }";
  std::string rest;
};

// Parses a run file whose key `pipeline` is on line 5.
StatusOr<RunSpec> Parsed(const std::string& pipeline, const ReplicaFieldsParts& parts = {}) {
  return ParseRunSpec("name: a\nmodel: " + parts.model +
                          "\ndata: { text: x.txt }\ntrain: { steps: 4, microbatches: 3 }\n"
                          "pipeline: " +
                          pipeline + "\n" + parts.rest,
                      "run.yaml", {});
}
std::string Error(const std::string& pipeline, const ReplicaFieldsParts& parts = {}) {
  const auto spec = Parsed(pipeline, parts);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

TEST(ReplicaFields, SayHowManyAndWhatTheySendEachOther) {
  const auto spec = Parsed("{ replicas: 3, gradients: 'tagc:keep=0.05', parameters: difference4 }");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->replicas.count, 3u);
  EXPECT_EQ(spec->replicas.gradients.form, replicas::GradientForm::kTagc);
  EXPECT_EQ(spec->replicas.gradients.keep, 0.05);
  EXPECT_EQ(spec->replicas.parameters, replicas::ParameterForm::kDifference4);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
}

TEST(ReplicaFields, LeaveTheirNumberToThePlan) {
  const auto spec = Parsed("{ replicas: auto, gradients: sdp4bit }");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->replicas.count_auto);
  EXPECT_EQ(spec->MicrobatchesPerStep(), 3u);  // of all replicas
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  const RunSpec three = spec->WithChosenReplicas(3);
  EXPECT_FALSE(three.replicas.count_auto);
  EXPECT_EQ(three.train.microbatches, 1u);
  EXPECT_EQ(three.MicrobatchesPerStep(), 3u);
  EXPECT_EQ(three.replicas.gradients.form, replicas::GradientForm::kSdp4bit);
  EXPECT_EQ(spec->WithChosenReplicas(1).replicas, ReplicasSpec());
  EXPECT_THAT(Error("{ replicas: some }"),
              HasSubstr("pipeline.replicas: expected a whole number from 1 to 64 or auto"));
  // What several replicas cannot do is refused at once.
  EXPECT_THAT(Error("{ replicas: auto, schedule: 2bw }"), HasSubstr("pipeline.replicas"));
  EXPECT_THAT(Error("{ replicas: auto, gradients: 'local-sgd:steps=3' }"),
              HasSubstr("train.steps: expected a multiple of the 3 steps"));
}

TEST(ReplicaFields, AStepHasTheTokensOfAllReplicas) {
  const auto spec = Parsed("{ replicas: 3 }");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->TokensOfReplica(), 3u * 8);
  EXPECT_EQ(spec->TokensPerStep(), 3u * 3 * 8);
}

TEST(ReplicaFields, AreRefusedWhereTheySayNothing) {
  EXPECT_THAT(Error("{ gradients: bf16, parameters: bf16 }"),
              AllOf(HasSubstr("pipeline.gradients: one replica (pipeline.replicas 1) sends no "
                              "other anything"),
                    HasSubstr("pipeline.parameters: one replica")));
}

TEST(ReplicaFields, NameWhatIsWrong) {
  EXPECT_THAT(Error("{ replicas: 2, gradients: sdp4bits }"),
              HasSubstr("run.yaml:5:37: pipeline.gradients: 'sdp4bits' is not one of none, bf16, "
                        "sdp4bit, tagc, local-sgd; did you mean 'sdp4bit'?"));
  EXPECT_THAT(Error("{ replicas: 2, parameters: fp16 }"),
              HasSubstr("pipeline.parameters: 'fp16' is not one of fp32, bf16, difference4"));
  EXPECT_THAT(Error("{ replicas: 65 }"), HasSubstr("pipeline.replicas: expected"));
}

TEST(ReplicaFields, SayWhatBecomesOfALostReplica) {
  const auto usual = Parsed("{ replicas: 2 }");
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->recovery.replicas, LostReplica::kExact);
  const auto spec = Parsed("{ replicas: 2 }", {.rest = "recovery: { replicas: continue }\n"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->recovery.replicas, LostReplica::kContinue);
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  EXPECT_THAT(Error("{ replicas: 2 }", {.rest = "recovery: { replicas: wait }\n"}),
              HasSubstr("recovery.replicas: expected"));
  EXPECT_THAT(Error("{ replicas: 2 }", {.rest = "recovery: { attempts: 0, replicas: continue }\n"}),
              HasSubstr("recovery.attempts 0 ends the run at the first one"));
  EXPECT_THAT(Error("{ replicas: 2, gradients: 'local-sgd:steps=2' }",
                    {.rest = "recovery: { replicas: continue }\ncheckpoint: { every: 2 }\n"}),
              HasSubstr("keep their number"));
}

// What a run has that goes on with another number.
TEST(ReplicaFields, AnotherNumberLeavesTheirFormsAsTheyAre) {
  const auto spec = Parsed("{ replicas: 3, gradients: sdp4bit, parameters: difference4 }",
                           {.rest = "recovery: { replicas: continue }\n"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (const uint32_t count : {1U, 2U, 5U}) {
    const RunSpec other = spec->WithReplicas(count);
    const auto parsed = ParseRunSpec(ToYaml(other), "other.yaml", {});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->replicas.count, count);
    EXPECT_EQ(parsed->MicrobatchesPerStep(), 3u * count);
    EXPECT_EQ(parsed->replicas.gradients.form,
              count == 1 ? replicas::GradientForm::kFp32 : replicas::GradientForm::kSdp4bit);
  }
}

TEST(ReplicaFields, RefuseWhatReplicasCannotTrain) {
  // The run trains 4 steps.
  EXPECT_THAT(Error("{ replicas: 2, gradients: 'local-sgd:steps=3' }",
                    {.rest = "checkpoint: { every: 3 }\n"}),
              HasSubstr("train.steps: expected a multiple of the 3 steps that local-sgd's replicas "
                        "train apart (pipeline.gradients), got 4"));
  EXPECT_THAT(Error("{ replicas: 2, gradients: 'local-sgd:steps=2' }",
                    {.rest = "checkpoint: { every: 3 }\n"}),
              HasSubstr("checkpoint.every: expected a multiple of the 2 steps"));
  EXPECT_EQ(Error("{ replicas: 2, gradients: 'local-sgd:steps=2' }",
                  {.rest = "checkpoint: { every: 2 }\n"}),
            "no error");
  EXPECT_EQ(Error("{ replicas: 2, gradients: 'local-sgd:steps=2,delay=0.5' }",
                  {.rest = "checkpoint: { every: 2 }\n"}),
            "no error");
  EXPECT_THAT(Error("{ replicas: 2, gradients: 'local-sgd:steps=4,delay=0.2' }"),
              HasSubstr("a delay of 0.2 of 4 steps is less than one step; raise it to 0.25"));
  for (const char* const group : {"group: { tensor: 2 }\n", "group: { tensor: auto }\n"}) {
    EXPECT_EQ(Error("{ replicas: 2 }", {.rest = group}), "no error");
  }
  const ReplicaFieldsParts tied = {
      .model = "{ layers: 2, hidden: 48, heads: 6, context: 8, tied: true }"};
  EXPECT_THAT(Error("{ replicas: 2, stages: 2, gradients: bf16 }", tied),
              HasSubstr("a matrix that two stages hold through codecs that round"));
  EXPECT_EQ(Error("{ replicas: 2, stages: 2 }", tied), "no error");
}

}  // namespace
}  // namespace longhaul
