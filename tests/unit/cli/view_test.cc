// What is shown, without a coordinator: tables, JSON, the live view, progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/format.h"
#include "cli/plan_view.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/watch_view.h"
#include "coordinator/view/json.h"

namespace longhaul::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Printable, NothingThatMovesTheCursor) {
  EXPECT_EQ(Printable("a\033[2Jb\n\tc\x7f"), "a?[2Jb  c?");
  EXPECT_EQ(Printable("gr\xC3\xBCn"), "gr\xC3\xBCn");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m \xFF \xC3"),
            "??31m ? ?");
  EXPECT_EQ(PrintableLines("a\033\nb"), "a?\nb");
  EXPECT_EQ(Columns("gr\xC3\xBCn"), 4);
  EXPECT_EQ(Shortened("gr\xC3\xBCn", 3), "gr\xC3\xBC");
}

TEST(Table, AlignsColumnsAndCutsLines) {
  Table table({{"NAME"}, {"STEP", Align::kRight}, {"STATE"}});
  table.AddRow({std::string("\xC3\xBC"), std::string("7"), TableCell("running", Style::kGreen)});
  table.AddRow({std::string("worker10"), std::string("12345"), std::string("")});
  EXPECT_THAT(table.Lines(80, false),
              ElementsAre("NAME       STEP  STATE", "\xC3\xBC             7  running",
                          "worker10  12345  -"));
  EXPECT_THAT(table.Lines(12, false), ElementsAre("NAME       S", "\xC3\xBC", "worker10  12"));
  EXPECT_EQ(table.Lines(80, true)[1], "\xC3\xBC             7  \033[32mrunning\033[0m");
  EXPECT_EQ(table.Plain(), "NAME\tSTEP\tSTATE\n\xC3\xBC\t7\trunning\nworker10\t12345\t-\n");
}

TEST(Json, NumbersKeepTheirDigits) {
  v1::StepRecord step;
  step.set_step(std::numeric_limits<uint64_t>::max());
  step.set_loss(0.1 + 0.2);
  step.set_gradient_norm(std::numeric_limits<double>::quiet_NaN());
  const auto json = nlohmann::json::parse(ToJson(step, false));
  EXPECT_EQ(json["step"].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(json["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(json["gradient_norm"].is_null());
  EXPECT_EQ(json["has_validation"], false);
  EXPECT_EQ(ToJson(step, false).find('\n'), std::string::npos);
  v1::RunStatus run;
  run.add_stages()->set_worker_name("w\xFF");
  run.add_workers_lost("w2");
  const auto nested = nlohmann::json::parse(ToJson(run, true));
  EXPECT_EQ(nested["stages"].size(), 1u);
  EXPECT_EQ(nested["workers_lost"][0], "w2");
  EXPECT_TRUE(nested["plan"].is_null());
}

TEST(Format, Numbers) {
  EXPECT_EQ(GroupedText(0), "0");
  EXPECT_EQ(GroupedText(999), "999");
  EXPECT_EQ(GroupedText(1234567.4), "1,234,567");
  EXPECT_EQ(GroupedText(-123456), "-123,456");
  EXPECT_EQ(ExactText(0.1), "0.10000000000000001");
  EXPECT_EQ(TimeText(0, true), "");
  EXPECT_EQ(TimeText(1'000'000'000'123, false), "2001-09-09T01:46:40.123Z");
}

TEST(Format, AdviceForEveryEndThatIsNotDone) {
  v1::RunStatus run;
  run.set_run_id("a-1");
  run.set_state("failed");
  EXPECT_THAT(Advice(run), HasSubstr("`longhaul events a-1`"));
  EXPECT_THAT(Advice(run), HasSubstr("submit it again"));
  run.set_checkpoint_step(50);
  EXPECT_THAT(
      Advice(run),
      HasSubstr("Go on from the checkpoint of step 50 with `longhaul submit FILE --resume`"));
  run.set_state("stopped");
  EXPECT_THAT(Advice(run), HasSubstr("step 50"));
  run.set_state("queued");
  EXPECT_THAT(Advice(run), HasSubstr("longhaul workers"));
  run.set_state("running");
  EXPECT_EQ(Advice(run), "");
}

v1::RunStatus RunningRun() {
  v1::RunStatus run;
  run.set_run_id("tiny-wan-abc123");
  run.set_state("running");
  run.set_schedule("link-aware");
  run.set_epoch(2);
  run.set_step(50);
  run.set_steps(200);
  run.set_loss(2.5);
  run.set_has_validation(true);
  run.set_validation_loss(2.75);
  run.set_validation_step(50);
  run.set_clean_validation_loss(2.7);
  run.set_tokens_per_second(12345.6);
  run.set_step_seconds(1.35);
  run.set_seconds_left(125);
  v1::StageStatus* stage = run.add_stages();
  stage->set_worker_name("worker1");
  stage->set_connected(true);
  stage->set_state("running");
  stage->set_compute_share(0.25);
  stage->set_wait_gradient_share(0.7);
  stage->set_optimizer_share(0.02);
  stage->set_codec_wait_share(0.03);
  stage->set_egress_share(0.98);
  stage->set_layers(4);
  stage->set_depth(8);
  v1::LinkStatus* link = run.add_links();
  link->set_from_worker("worker1");
  link->set_to_worker("worker2");
  link->set_direction("forward");
  link->set_codec("tah");
  link->set_rate_bits_per_second(9.8e6);
  link->set_goodput_bits_per_second(9.56e6);
  link->set_bound_share(0.98);
  link->set_busy_share(0.97);
  link->set_waits_for("egress");
  link->set_state("healthy");
  return run;
}

TEST(WatchView, ShowsTheRanksOfAStageWhereThereAreSeveral) {
  v1::RunStatus run = RunningRun();
  run.mutable_stages(0)->set_tensor_ranks(2);
  run.mutable_stages(0)->add_devices(0);
  run.mutable_stages(0)->add_devices(1);
  run.mutable_stages(0)->set_device_kind("cpu");
  const std::vector<std::string> lines = WatchLines(run, 160, false);
  EXPECT_THAT(lines[4], HasSubstr("WORKER   GROUP               STATE"));
  EXPECT_THAT(lines[5], HasSubstr("worker1  2 ranks on cpu 0-1  running"));
}

TEST(WatchView, ShowsWhatRanksExchangedAndSaysWhatIsNotKnown) {
  v1::RunStatus run = RunningRun();
  for (const std::string& line : WatchLines(run, 160, false)) {
    EXPECT_THAT(line, Not(HasSubstr("ALL-REDUCE")));
  }
  v1::StageStatus& stage = *run.mutable_stages(0);
  stage.mutable_collectives()->mutable_sent()->set_all_reduce(4'200'000);
  stage.mutable_collectives()->mutable_sent()->set_all_gather(1'000);
  std::vector<std::string> lines = WatchLines(run, 160, false);
  EXPECT_THAT(lines, Contains("RANKS OF STAGE  COLLECTIVES  OF THE STEP  ALL-REDUCE  ALL-GATHER  "
                              "REDUCE-SCATTER  ALL-TO-ALL"));
  EXPECT_THAT(lines, Contains("             0            ?            ?      4.2 MB        1 KB  "
                              "             -           -"));
  stage.mutable_collectives()->set_seconds(0.25);
  stage.set_collective_share(0.2);
  lines = WatchLines(run, 160, false);
  EXPECT_THAT(lines, Contains(HasSubstr("       250 ms          20%")));
  stage.mutable_expert_load()->set_highest(2.5);
  stage.mutable_expert_load()->set_layer(3);
  stage.mutable_expert_load()->set_mean(1.75);
  lines = WatchLines(run, 160, false);
  EXPECT_THAT(lines, Contains("EXPERTS OF STAGE  MOST OVER MEAN  IN LAYER  MEAN OF LAYERS"));
  EXPECT_THAT(lines, Contains("               0           2.50x         3           1.75x"));
  const auto json = nlohmann::json::parse(ToJson(run, false));
  EXPECT_EQ(json["stages"][0]["expert_load"]["highest"].get<double>(), 2.5);
  EXPECT_EQ(json["stages"][0]["collectives"]["sent"]["all_reduce"].get<uint64_t>(), 4'200'000u);
  EXPECT_EQ(json["stages"][0]["collectives"]["seconds"].get<double>(), 0.25);
}

TEST(PlanView, NamesFillAndDrain) {
  Plan plan;
  plan.prediction.step_seconds = 5;
  plan.prediction.lower_bound_seconds = 4.75;
  plan.prediction.floor_seconds = 4;
  plan.prediction.busiest = "egress of stage 1";
  plan.prediction.busiest_bytes = 50'000'000;
  RunSpec spec;
  const auto printed = [&] {
    std::ostringstream out;
    PrintPlan({.out = out, .err = out}, plan, spec);
    return out.str();
  };
  EXPECT_THAT(
      printed(),
      HasSubstr("steady-state floor: 4 s, 80.0% of the predicted step, in which the egress "
                "of stage 1 carries 50 MB; fill and drain of one synchronous step: 750 ms"));
  plan.prediction.busiest = "compute of stage 0";
  plan.prediction.busiest_bytes = 0;
  EXPECT_THAT(printed(), HasSubstr("the compute of stage 0 is at work; fill and drain"));
  // The slowest stage is the first to have work and the last to end: nothing is between the two.
  plan.prediction.floor_seconds = plan.prediction.lower_bound_seconds;
  EXPECT_THAT(printed(), HasSubstr("fill and drain of one synchronous step: 0 "));
  spec.pipeline.schedule = ScheduleKind::kTwoVersions;
  EXPECT_THAT(printed(), HasSubstr("fill and drain: none, because steps overlap"));
  plan.prediction.floor_seconds = 0;  // of an older version
  EXPECT_THAT(printed(), Not(HasSubstr("floor")));
}

// A plan of two stages, the second of one rank.
TEST(PlanView, ShowsWhatRanksExchangeAndWhatOtherNumbersWouldDo) {
  Plan plan;
  plan.assignment.cells.resize(2);
  plan.assignment.cells[0].group.tensor = 2;
  plan.assignment.cells[1].id.stage = 1;
  plan.cells.resize(2);
  plan.cells[0].forward_seconds = 0.1;
  plan.cells[0].backward_seconds = 0.2;
  plan.cells[0].group = GroupEstimate{.forward_collective = "host",
                                      .backward_collective = "zip over host",
                                      .sent = {.all_reduce = 1'000'000},
                                      .collective_seconds = 0.05,
                                      .even_share_seconds = 0.2};
  plan.prediction.step_seconds = 2;
  plan.prediction.ranks = {{.tensor = 1, .step_seconds = 4, .memory_bytes = 2'000'000},
                           {.tensor = 2, .step_seconds = 2, .memory_bytes = 1'000'000},
                           {.tensor = 3, .refused = "3 does not divide its 8 heads"}};
  RunSpec spec;
  spec.train.microbatches = 10;
  std::ostringstream out;
  const Terminal terminal{.out = out, .err = out};
  PrintPlan(terminal, plan, spec);
  EXPECT_THAT(out.str(), HasSubstr("0\thost\tzip over host\t10 MB\t500 ms\t25%\t+1 s\n"));
  EXPECT_THAT(out.str(), HasSubstr("2\t2 s\t"));
  EXPECT_THAT(out.str(), HasSubstr("\t1 MB\tchosen\n"));
  EXPECT_THAT(out.str(), HasSubstr("3\t-\t-\t-\t3 does not divide its 8 heads\n"));

  // Where experts are divided.
  plan.assignment.cells[0].group = {4, 2};
  plan.assignment.cells[0].devices = {0, 1, 2, 3};
  plan.cells[0].group->sent.all_to_all = 250'000;
  plan.prediction.ranks = {
      {.tensor = 4, .expert = 1, .step_seconds = 4, .memory_bytes = 2'000'000},
      {.tensor = 4, .expert = 2, .step_seconds = 2, .memory_bytes = 1'000'000},
      {.tensor = 4, .expert = 4, .step_seconds = 3, .memory_bytes = 1'000'000}};
  std::ostringstream divided;
  PrintPlan({.out = divided, .err = divided}, plan, spec);
  EXPECT_THAT(divided.str(), HasSubstr("4 ranks, experts in 2 parts, on devices 0-3"));
  EXPECT_THAT(divided.str(), HasSubstr("0\thost\tzip over host\t12.5 MB\t2.5 MB\t500 ms\t25%"));
  EXPECT_THAT(divided.str(), HasSubstr("each number of ranks and of parts of experts"));
  EXPECT_THAT(divided.str(), HasSubstr("4\t1\t4 s\t"));
  EXPECT_THAT(divided.str(), ContainsRegex("4\t2\t2 s\t.*\t1 MB\tchosen\n"));
  EXPECT_THAT(divided.str(), ContainsRegex("4\t4\t3 s\t.*\t1 MB\tslower\n"));

  plan.assignment.cells[0].group = {2, 1};
  plan.cells[0].group.reset();
  plan.prediction.ranks.clear();
  std::ostringstream without;
  PrintPlan({.out = without, .err = without}, plan, spec);
  EXPECT_THAT(without.str(), AllOf(Not(HasSubstr("exchange")), Not(HasSubstr("auto"))));
}

TEST(WatchView, ShowsEverythingWithinTheWidth) {
  const std::vector<std::string> lines = WatchLines(RunningRun(), 120, false);
  EXPECT_THAT(
      lines,
      ElementsAre("tiny-wan-abc123  running  link-aware  epoch 2",
                  "[#########.............................]  step 50/200  25%  2m05s left",
                  "loss 2.5  validation 2.75, clean 2.7 (step 50)  12,346 tokens/s  1.35 s a step",
                  "",
                  "STAGE  WORKER   STATE    LAYERS  DEPTH  STEP  COMPUTE  OPTIMIZER  WAITS "
                  "FOR INPUT  FOR GRADIENTS  FOR CODEC  OUT  IN",
                  "    0  worker1  running       4      8     0      25%         2%        "
                  "       0%            70%         3%  98%   -",
                  "",
                  "LINK               DIRECTION  CODEC        RATE      GOODPUT  OF RATE  "
                  "BUSY  WAITS FOR  STATE",
                  "worker1 > worker2  forward    tah    9.8 Mbit/s  9.56 Mbit/s      98%   "
                  "97%  egress     healthy"));
  v1::RunStatus unmeasured = RunningRun();
  unmeasured.mutable_links(0)->set_rate_bits_per_second(0);
  EXPECT_EQ(
      WatchLines(unmeasured, 120, false).back(),
      "worker1 > worker2  forward    tah       ?  9.56 Mbit/s        ?   97%  egress     healthy");
  for (const int columns : {1, 20, 40, 80}) {
    for (const std::string& line : WatchLines(RunningRun(), columns, false)) {
      EXPECT_LE(Columns(line), std::max(columns, 20)) << line;
    }
  }
  for (const std::string& line : lines) EXPECT_THAT(line, Not(HasSubstr("\033")));
  EXPECT_THAT(WatchLines(RunningRun(), 120, true)[0], HasSubstr("\033[32mrunning\033[0m"));
}

TEST(WatchView, AReasonIsShownWhole) {
  v1::RunStatus run;
  run.set_run_id("a-1");
  run.set_state("queued");
  run.set_reason("needs 4 workers, 3 connected: worker1, worker2, worker3");
  EXPECT_THAT(WatchLines(run, 30, false),
              ElementsAre("a-1  queued", "needs 4 workers, 3 connected:",
                          "worker1, worker2, worker3", "[................]  step 0  0%"));
}

TEST(WatchView, PlainLinesAndNews) {
  EXPECT_EQ(PlainWatchLine(RunningRun(), 1'000'000'000'000),
            "2001-09-09T01:46:40.000Z tiny-wan-abc123 running step 50/200 loss 2.5 validation "
            "2.75, clean 2.7 (step 50) 12,346 tokens/s 1.35 s a step 2m05s left");
  v1::RunStatus planned = RunningRun();
  planned.mutable_plan()->mutable_prediction()->set_floor_seconds(1.1);
  planned.mutable_plan()->mutable_prediction()->set_lower_bound_seconds(1.3);
  EXPECT_THAT(PlainWatchLine(planned, 0), HasSubstr("1.35 s a step (floor 1.1 s, bound 1.3 s)"));
  v1::RunStatus next = RunningRun();
  EXPECT_FALSE(HasNews(RunningRun(), next));
  next.set_tokens_per_second(1);
  EXPECT_FALSE(HasNews(RunningRun(), next));
  next.set_step(51);
  EXPECT_TRUE(HasNews(RunningRun(), next));
  next = RunningRun();
  next.set_reason("a reason");
  EXPECT_TRUE(HasNews(RunningRun(), next));
}

TEST(WatchView, ShowsTheNewestSamplesAsTextOrAsTokens) {
  v1::RunStatus run = RunningRun();
  for (const uint64_t step : {50, 100}) {
    v1::SampleRound& round = *run.add_samples();
    round.set_step(step);
    round.set_unix_ms(static_cast<int64_t>(step));
    v1::Sample& sample = *round.add_samples();
    sample.set_prompt("Once\033 upon");
    sample.set_text(" a time\nlinks were slow");
    *round.add_samples() = sample;
    round.mutable_samples(1)->clear_text();
    for (const uint32_t id : {7, 12}) round.mutable_samples(1)->add_ids(id);
  }
  EXPECT_TRUE(HasNews(RunningRun(), run));
  EXPECT_TRUE(HasNewSamples(RunningRun(), run));
  EXPECT_FALSE(HasNewSamples(run, run));
  EXPECT_FALSE(HasNewSamples(run, RunningRun()));
  const std::vector<std::string> lines = WatchLines(run, 60, false);
  EXPECT_THAT(lines, Contains("sample (step 100): Once? upon >  a time\\nlinks were slow"));
  EXPECT_THAT(lines, Contains("sample (step 100): Once? upon > tokens 7 12"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("sample (step 50)"))));
  run.mutable_samples(1)->set_problem("training has diverged");
  EXPECT_THAT(WatchLines(run, 60, false),
              Contains("no samples after step 100: training has diverged"));
}

TEST(Progress, SilentForTwoSecondsThenSaysHowLong) {
  std::ostringstream out, err;
  const Terminal terminal{out, err};
  MonoTime now{};
  Progress progress(terminal, "uploading", [&] { return now; });
  now += absl::Milliseconds(1900);
  progress.Bytes(10'000'000, 100'000'000);
  EXPECT_EQ(err.str(), "");
  now += absl::Milliseconds(100);
  progress.Bytes(20'000'000, 100'000'000);
  EXPECT_EQ(err.str(), "uploading: 20 MB of 100 MB, 20%, 8 s left\n");
  now += absl::Seconds(5);
  progress.Bytes(50'000'000, 100'000'000);
  EXPECT_EQ(err.str(), "uploading: 20 MB of 100 MB, 20%, 8 s left\n");
  now += absl::Seconds(5);
  progress.Say("nearly there");
  EXPECT_THAT(err.str(), HasSubstr("uploading: nearly there\n"));
}

TEST(Progress, RedrawsInPlaceAndCleansUpOnATerminal) {
  std::ostringstream out, err;
  Terminal terminal{out, err};
  terminal.err_is_terminal = true;
  MonoTime now{};
  {
    Progress progress(terminal, "reading", [&] { return now; });
    now += absl::Seconds(3);
    progress.Say("");
    now += absl::Seconds(1);
    progress.Bytes(0, 0);
  }
  EXPECT_EQ(err.str(), "\r\033[Kreading\r\033[Kreading: 0 B\r\033[K");
}

}  // namespace
}  // namespace longhaul::cli
