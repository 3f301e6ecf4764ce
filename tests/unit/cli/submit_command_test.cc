// `longhaul submit` and `plan`.
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, SubmitChecksEverythingBeforeItDials) {
  Write("bad.yaml", "name: tiny\nmodel: { lyers: 2 }\ndata: { text: x }\ntrain: { steps: no }\n");
  const Outcome bad = Run({"submit", Path("bad.yaml"), "--coordinator", "127.0.0.1:1"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err,
              HasSubstr(Path("bad.yaml") + ":2:10: unknown key 'lyers'; did you mean 'layers'?\n"));
  EXPECT_THAT(bad.err, HasSubstr(":4:17: train.steps: expected a whole number"));
  EXPECT_THAT(bad.err, Not(HasSubstr("cannot reach")));

  const Outcome data = Run({"submit", Path("run.yaml"), "--set", "data.text=[no*.txt, b/*]"});
  EXPECT_EQ(data.code, 1);
  EXPECT_THAT(data.err, HasSubstr("'no*.txt' matches no file"));
  EXPECT_THAT(data.err, HasSubstr("'b/*' matches no file"));

  // Beside other errors of the file, and for a plan as well.
  for (const char* command : {"submit", "plan"}) {
    const Outcome both = Run({command, Path("run.yaml"), "--set", "data.text=[no*.txt]", "--set",
                              "train.steps=none", "--set", "model.heads=7"});
    EXPECT_EQ(both.code, 1);
    EXPECT_THAT(both.err, HasSubstr("'no*.txt' matches no file"));
    EXPECT_THAT(both.err, HasSubstr("train.steps: expected a whole number"));
    EXPECT_THAT(both.err, HasSubstr("do not divide model.hidden"));
  }

  const Outcome size = Run({"submit", Path("run.yaml"), "--set", "model.context=4000000"});
  EXPECT_EQ(size.code, 1);
  EXPECT_THAT(size.err, HasSubstr("tokens to train on"));
  EXPECT_THAT(size.err, HasSubstr("tokens for validation"));

  const Outcome codec = Run({"submit", Path("run.yaml"), "--set", "links.forward=zap"});
  EXPECT_EQ(codec.code, 1);
  EXPECT_THAT(codec.err, StartsWith("--set links.forward=zap: links.forward: "));

  const Outcome missing = Run({"submit", Path("nowhere.yaml")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr(Path("nowhere.yaml")));
}

// As on the Hub's own pages, where names have no scheme.
TEST_F(CliTest, ANameOfTheHubWithoutItsSchemeIsToldApart) {
  const std::string rest = "train: { steps: 1, microbatches: 1 }\n";
  Write("model.yaml",
        "name: tiny\nmodel: { from: Qwen/Qwen2.5-0.5B, context: 8 }\ndata: { text: x }\n" + rest);
  Write("data.yaml",
        "name: tiny\nmodel: { layers: 1, hidden: 8, heads: 2, context: 8 }\n"
        "data: { sets: [ORG/NAME] }\n" +
            rest);
  const Outcome model = Run({"submit", Path("model.yaml")});
  EXPECT_EQ(model.code, 1);
  EXPECT_THAT(model.err, HasSubstr("for the model of this name on the Hugging Face Hub write "
                                   "hf://Qwen/Qwen2.5-0.5B"));
  EXPECT_THAT(Run({"submit", Path("data.yaml")}).err, HasSubstr("write hf://datasets/ORG/NAME"));
  // A path is none.
  for (const std::string from : {"./models/qwen", "/models/qwen", "models/a/b"}) {
    Write("path.yaml",
          "name: tiny\nmodel: { from: " + from + ", context: 8 }\ndata: { text: x }\n" + rest);
    EXPECT_THAT(Run({"submit", Path("path.yaml")}).err, Not(HasSubstr("hf://"))) << from;
  }
}

TEST_F(CliTest, SubmitUploadsWhatIsMissingOnce) {
  control_.submit_reply.set_run_id("tiny-abc123");
  control_.submit_reply.add_notes("waiting for 2 more workers");
  const Outcome outcome = Ask({"submit", Path("run.yaml"), "--set", "train.steps=21"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "tiny-abc123\n");
  EXPECT_THAT(outcome.err, HasSubstr("waiting for 2 more workers"));
  // a.txt and c.txt are the same blob.
  const std::string a(2000, 'a'), b(3'000'000, 'b');
  EXPECT_EQ(control_.blobs,
            (std::map<std::string, std::string>{{Sha256Hex(a), a}, {Sha256Hex(b), b}}));
  ASSERT_EQ(control_.submitted.data_files_size(), 3);
  EXPECT_EQ(control_.submitted.data_files(1).name(), Path("corpus/b.txt"));
  EXPECT_EQ(control_.submitted.data_files(1).sha256(), Sha256Hex(b));
  EXPECT_EQ(control_.submitted.data_files(1).bytes(), b.size());
  EXPECT_EQ(control_.submitted.run_yaml(), kRunFile);
  EXPECT_THAT(control_.submitted.overrides(), ElementsAre("train.steps=21"));
  EXPECT_FALSE(control_.submitted.resume());

  const int chunks = control_.chunks;
  control_.submit_reply.set_resume_step(50);
  const Outcome again = Ask({"submit", "--resume", "--json", Path("run.yaml")});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(control_.chunks, chunks);
  EXPECT_TRUE(control_.submitted.resume());
  const auto json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["run_id"], "tiny-abc123");
  EXPECT_EQ(json["resume_step"], 50);
}

// An upload that takes more than a day: what came first is garbage before the last is there.
TEST_F(CliTest, SubmitUploadsAgainWhatIsNotThereAnyMore) {
  control_.submit_reply.set_run_id("tiny-abc123");
  const std::string a(2000, 'a');
  int calls = 0;
  control_.before_missing_blobs = [&] {
    if (++calls == 2) control_.blobs.erase(Sha256Hex(a));
  };
  EXPECT_EQ(Ask({"submit", Path("run.yaml")}).code, 0);
  EXPECT_EQ(control_.blobs.size(), 2u);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(control_.submitted.data_files_size(), 3);
  // A coordinator that keeps nothing does not keep the user for ever.
  control_.submitted.Clear();
  control_.before_missing_blobs = [&] { control_.blobs.clear(); };
  const Outcome outcome = Ask({"submit", Path("run.yaml")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("some is missing again"));
  EXPECT_EQ(control_.submitted.data_files_size(), 0);
}

TEST_F(CliTest, NobodyElseThanALocalClusterEmulatesATopology) {
  const std::string topology =
      "topology={regions: {eu: [worker1], us: [worker2]}, links: [{between: [eu, us], delay: "
      "9ms}]}";
  for (const char* command : {"submit", "plan"}) {
    const Outcome outcome = Ask({command, Path("run.yaml"), "--set", topology});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("a topology, which only a local cluster emulates"));
    EXPECT_THAT(outcome.err, HasSubstr(control_.address()));
  }
  EXPECT_TRUE(control_.blobs.empty());
  EXPECT_EQ(control_.submitted.run_yaml(), "");
}

TEST_F(CliTest, SubmitTellsWhatTheCoordinatorRefused) {
  control_.submit_status = {grpc::StatusCode::FAILED_PRECONDITION, "no unfinished run 'tiny'"};
  const Outcome outcome = Ask({"submit", Path("run.yaml"), "--resume"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "no unfinished run 'tiny'\n");
}

TEST_F(CliTest, SubmitWatchGivesTheRunsOutcome) {
  control_.submit_reply.set_run_id("tiny-abc123");
  control_.watched = {State("running", 19), State("done", 20)};
  const Outcome done = Ask({"submit", Path("run.yaml"), "--watch"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("tiny-abc123\n"));
  EXPECT_THAT(done.out, HasSubstr("done step 20/20"));

  control_.watched = {State("running", 3), State("failed", 3)};
  control_.watched[1].set_reason("worker2 vanished");
  const Outcome failed = Ask({"submit", Path("run.yaml"), "--watch"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("failed step 3/20 loss 2.5: worker2 vanished"));
  EXPECT_THAT(failed.err, HasSubstr("tiny-abc123 failed at step 3/20."));
}

TEST_F(CliTest, Plan) {
  Plan plan;
  plan.assignment.cells = {{.worker_name = "worker1", .layers = {0, 2}},
                           {.id = {.stage = 1}, .worker_name = "worker2", .layers = {2, 1}}};
  plan.cells = {{.forward_seconds = 0.004}, {}};
  plan.assignment.edges = chain::MakeEdges(1, 2);
  plan.assignment.edges[0].forward = {.codec = "none", .bytes = 36'100};
  plan.prediction.step_seconds = 2;
  plan.prediction.bottleneck = "egress of stage 1";
  plan.explanation = "A paragraph.";
  control_.plan = ToProto(plan);
  const Outcome outcome = Ask({"plan", Path("run.yaml")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0\tworker1\t0-1\t"));
  EXPECT_THAT(outcome.out, HasSubstr("1\tworker2\t2\t"));
  EXPECT_THAT(outcome.out, HasSubstr("0 - 1\t"));
  EXPECT_THAT(outcome.out, HasSubstr("\tnone\t36.1 KB\t"));
  // 4 microbatches x 8 tokens in 2 s.
  EXPECT_THAT(outcome.out, HasSubstr("predicted step: 2 s (16 tokens/s)"));
  EXPECT_THAT(outcome.out, HasSubstr("what bounds it: egress of stage 1\nA paragraph.\n"));
  const auto json = nlohmann::json::parse(Ask({"plan", Path("run.yaml"), "--json"}).out);
  EXPECT_EQ(json["assignment"]["cells"].size(), 2u);
}

TEST_F(CliTest, PlanForANetworkThatIsAssumed) {
  Plan plan;
  plan.assignment.cells.resize(1);
  plan.cells.resize(1);
  plan.prediction.step_seconds = 2;
  plan.prediction.cells = {
      {.compute_seconds = 0.5, .wait_below_seconds = 1.5, .egress_share = 0.875}};
  plan.prediction.codecs = {{.name = "bf16",
                             .step_seconds = 4,
                             .tokens_per_second = 1234,
                             .lower_bound_seconds = 3.8,
                             .bottleneck = "egress of stage 1"}};
  control_.plan = ToProto(plan);
  const Outcome outcome = Ask({"plan", Path("run.yaml"), "--rate", "100mbit", "--delay", "25ms"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(control_.submitted.assumed_line_bits_per_second(), 100'000'000u);
  EXPECT_EQ(control_.submitted.assumed_delay_seconds(), 0.025);
  EXPECT_THAT(outcome.out, HasSubstr("0\t25%\t0%\t0%\t75%\t0%\t88%\t0%\n"));
  EXPECT_THAT(outcome.out, HasSubstr("bf16 *\t4 s\t1,234\t95.0%\t"));
  EXPECT_THAT(outcome.out, HasSubstr("* encoding and decoding were not measured"));
  Ask({"plan", Path("run.yaml")});
  EXPECT_FALSE(control_.submitted.has_assumed_line_bits_per_second());
  EXPECT_FALSE(control_.submitted.has_assumed_delay_seconds());
  EXPECT_THAT(Run({"plan", Path("run.yaml"), "--rate", "0bit"}).err, HasSubstr("--rate"));
  EXPECT_THAT(Run({"plan", Path("run.yaml"), "--delay", "25"}).err, HasSubstr("--delay"));
}

TEST_F(CliTest, ShowConfigNeedsNoCoordinatorAndNoData) {
  const Outcome outcome = Run({"plan", "--show-config", Path("run.yaml"), "--set", "data.text=none",
                               "--set", "train.steps=33"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  steps: 33\n"));
  EXPECT_THAT(outcome.out, HasSubstr("peer_timeout: 10s\n"));
  EXPECT_THAT(Run({"--json", "plan", "--show-config", Path("run.yaml")}).err,
              HasSubstr("leave --json out"));
  Write("full.yaml", outcome.out);
  EXPECT_EQ(Run({"plan", "--show-config", Path("full.yaml")}).out, outcome.out);
}

}  // namespace
}  // namespace longhaul::cli
