// Steps, validation, checkpoints, links, and what people see of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Reports : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    RunSpec spec = SmallSpec("tiny", 2);
    spec.train.steps = 100;
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Forget();
  }
  void Validate(const std::string& worker, uint64_t step, double loss) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_validation()->set_step(step);
    message.mutable_validation()->set_loss(loss);
    c.Tick(c.Said(worker, message));
  }
  void ValidateClean(uint64_t step, double loss, double clean) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_validation()->set_step(step);
    message.mutable_validation()->set_loss(loss);
    message.mutable_validation()->set_clean_loss(clean);
    c.Tick(c.Said("b", message));
  }
  void Link(const std::string& worker, uint32_t edge, const std::string& state) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_link()->set_edge(edge);
    message.mutable_link()->set_state(state);
    message.mutable_link()->set_silence_seconds(3);
    message.mutable_link()->set_reason("connection reset");
    message.mutable_link()->set_frames_resent(7);
    c.Tick(c.Said(worker, message));
  }
  std::vector<uint64_t> Checkpoints() {
    std::vector<uint64_t> steps;
    for (const auto& manifest : c.records["tiny-1"].checkpoints) steps.push_back(manifest.step());
    return steps;
  }
  Coordinator c;
};

TEST_F(Reports, AStepTakesItsNumbersFromTheStagesThatHaveThem) {
  v1::StepReport a = c.Report(1, 0, 2), b = c.Report(1, 1, 2);
  a.set_seconds(2.0);
  b.set_seconds(1.0);
  a.add_links()->set_link_bytes_sent(100);
  a.mutable_links(0)->set_payload_bytes_sent(90);
  b.add_links()->set_link_bytes_sent(10);
  b.mutable_links(0)->set_payload_bytes_sent(9);
  c.Step("b", "tiny-1", b);
  EXPECT_FALSE(c.steps["tiny-1"].contains(1));
  c.Step("a", "tiny-1", a);
  const v1::StepRecord step = c.steps["tiny-1"].at(1);
  EXPECT_EQ(step.seconds(), 2.0);
  EXPECT_EQ(step.link_bytes(), 110u);
  EXPECT_EQ(step.payload_bytes(), 99u);
  EXPECT_NEAR(step.loss(), 4.9, 1e-9);
  EXPECT_EQ(step.gradient_norm(), 2.0);
  EXPECT_EQ(step.learning_rate(), 1e-3);
  EXPECT_EQ(step.epoch(), 1u);
}

TEST_F(Reports, AStepSaysHowEvenlyExpertsWereBusy) {
  const auto load = [](double highest, uint32_t layer, double mean) {
    v1::ExpertLoad one;
    one.set_highest(highest);
    one.set_layer(layer);
    one.set_mean(mean);
    return one;
  };
  v1::StepReport a = c.Report(1, 0, 2), b = c.Report(1, 1, 2);
  const auto& cells = c.records["tiny-1"].plan->assignment.cells;
  *a.mutable_expert_load() = load(1.5, 0, 1.25);
  *b.mutable_expert_load() = load(3, cells[1].layers.first, 2);
  c.Step("b", "tiny-1", b);
  c.Step("a", "tiny-1", a);
  const v1::ExpertLoad& of_step = c.steps["tiny-1"].at(1).expert_load();
  EXPECT_EQ(of_step.highest(), 3);
  EXPECT_EQ(of_step.layer(), cells[1].layers.first);
  const double layers = cells[0].layers.count + cells[1].layers.count;
  EXPECT_DOUBLE_EQ(of_step.mean(),
                   (1.25 * cells[0].layers.count + 2 * cells[1].layers.count) / layers);
  EXPECT_EQ(c.views().RunOf("tiny-1")->stages(0).expert_load().highest(), 1.5);

  // A stage that says nothing of them, as a skipped step's: nothing is known of all.
  a.set_step(2);
  b = c.Report(2, 1, 2);
  c.Step("b", "tiny-1", b);
  c.Step("a", "tiny-1", a);
  EXPECT_FALSE(c.steps["tiny-1"].at(2).has_expert_load());
}

TEST_F(Reports, AStepSaysWhichShareOfPairsIsPreferred) {
  v1::StepReport a = c.Report(1, 0, 2), b = c.Report(1, 1, 2);
  a.mutable_preferences()->set_pairs(1000);  // not the last stage
  b.mutable_preferences()->set_pairs(8);
  b.mutable_preferences()->set_preferred(6);
  b.mutable_preferences()->set_margins(-2);
  c.Step("b", "tiny-1", b);
  c.Step("a", "tiny-1", a);
  EXPECT_EQ(c.steps["tiny-1"].at(1).preference_accuracy(), 0.75);
  EXPECT_EQ(c.steps["tiny-1"].at(1).preference_margin(), -0.25);
  EXPECT_FALSE(c.steps["tiny-1"].at(1).has_validation_preference_accuracy());
  c.Steps(kAb, "tiny-1", 2);
  EXPECT_FALSE(c.steps["tiny-1"].at(2).has_preference_accuracy());
}

TEST_F(Reports, ALostReportDoesNotStopTheCount) {
  c.Step("a", "tiny-1", c.Report(1, 0, 2));  // b's report of step 1 is lost
  c.Steps(kAb, "tiny-1", 2);
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 2u);
  c.Step("b", "tiny-1", c.Report(1, 1, 2));  // too late
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 2u);
}

// One stage makes up steps of the future, of a megabyte each: what is kept is bounded, and the
// steps that the run is at are not pushed out.
TEST_F(Reports, StepsOfTheFutureTakeBoundedMemory) {
  v1::StepReport large = c.Report(1, 0, 2);
  while (large.ByteSizeLong() < 1 << 20) {  // which looks at each link
    for (int i = 0; i < 4000; ++i) large.add_links()->set_link_bytes_sent(uint64_t{1} << 60);
  }
  c.Step("a", "tiny-1", c.Report(1, 0, 2));
  for (uint64_t step = 90; step > 2; --step) {
    large.set_step(step);
    c.Step("a", "tiny-1", large);
  }
  c.Step("b", "tiny-1", c.Report(1, 1, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 1u);
  c.Step("b", "tiny-1", c.Report(90, 1, 2));  // nobody has kept the other one's
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 1u);
  c.Step("b", "tiny-1", c.Report(3, 1, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 3u);
  // Room again for what comes.
  for (uint64_t step = 4; step <= 50; ++step) c.Steps(kAb, "tiny-1", step);
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 50u);
}

TEST_F(Reports, NonsenseIsDropped) {
  c.Step("a", "tiny-1", c.Report(101, 0, 2));  // behind the last step
  c.Step("a", "tiny-1", c.Report(0, 0, 2));
  for (uint64_t step = 1; step <= 90; ++step) c.Step("a", "tiny-1", c.Report(step, 0, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 0u);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Reports, ValidationJoinsItsStepWhicheverComesFirst) {
  c.Steps(kAb, "tiny-1", 1);
  Validate("b", 1, 4.5);
  EXPECT_TRUE(c.steps["tiny-1"].at(1).has_validation());
  EXPECT_EQ(c.steps["tiny-1"].at(1).validation_loss(), 4.5);
  Validate("b", 2, 4.25);
  c.Steps(kAb, "tiny-1", 2);
  EXPECT_EQ(c.steps["tiny-1"].at(2).validation_loss(), 4.25);
  EXPECT_EQ(c.views().RunOf("tiny-1")->validation_loss(), 4.25);
  EXPECT_EQ(c.views().RunOf("tiny-1")->validation_step(), 2u);
  Validate("a", 2, 1.0);  // not the last stage
  EXPECT_EQ(c.views().RunOf("tiny-1")->validation_loss(), 4.25);
}

TEST_F(Reports, TheCleanLossIsBesideTheOther) {
  ValidateClean(1, 4.5, 4.25);
  c.Steps(kAb, "tiny-1", 1);
  EXPECT_EQ(c.steps["tiny-1"].at(1).validation_loss(), 4.5);
  EXPECT_EQ(c.steps["tiny-1"].at(1).clean_validation_loss(), 4.25);
  EXPECT_EQ(c.views().RunOf("tiny-1")->clean_validation_loss(), 4.25);
  EXPECT_EQ(c.LastEvent("loss"),
            "validation loss at step 1: 4.5000, with boundaries in fp32 4.2500");
  c.Steps(kAb, "tiny-1", 2);
  Validate("b", 2, 4);
  EXPECT_FALSE(c.steps["tiny-1"].at(2).has_clean_validation_loss());
  EXPECT_FALSE(c.views().RunOf("tiny-1")->has_clean_validation_loss()) << "of an older validation";
}

TEST_F(Reports, TheValidationBeforeTheFirstStepIsARowOfItsOwn) {
  ValidateClean(0, 4.5, 4.25);
  const v1::StepRecord& row = c.steps["tiny-1"].at(0);
  EXPECT_EQ(row.epoch(), 1u);
  EXPECT_FALSE(row.has_loss());
  EXPECT_EQ(row.validation_loss(), 4.5);
  EXPECT_EQ(row.clean_validation_loss(), 4.25);
  EXPECT_TRUE(c.views().RunOf("tiny-1")->has_validation());
  EXPECT_EQ(c.views().RunOf("tiny-1")->validation_step(), 0u);
  c.Steps(kAb, "tiny-1", 1);
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 1u);
}

TEST_F(Reports, ACheckpointIsCommittedWhenAllStagesHaveIt) {
  v1::WorkerMessage message = c.About("tiny-1");
  *message.mutable_shard() = ShardOf(2, 0);
  c.Tick(c.Said("a", message));
  EXPECT_TRUE(Checkpoints().empty());
  EXPECT_EQ(c.views().RunOf("tiny-1")->checkpoint_step(), 0u);
  *message.mutable_shard() = ShardOf(2, 1);
  message.mutable_shard()->mutable_files(0)->set_stage(9);  // claims are not believed
  message.mutable_shard()->mutable_files(0)->add_holders()->set_worker_id("somebody");
  c.Tick(c.Said("b", message));
  ASSERT_THAT(Checkpoints(), ElementsAre(2u));
  const v1::CheckpointManifest manifest = c.records["tiny-1"].checkpoints[0];
  EXPECT_EQ(manifest.format(), 3u);
  EXPECT_EQ(manifest.epoch(), 1u);
  ASSERT_EQ(manifest.files_size(), 2);
  EXPECT_EQ(manifest.files(1).stage(), 1u);
  EXPECT_EQ(manifest.files(1).holders(0).worker_id(), "id-b");
  EXPECT_EQ(manifest.files(1).holders_size(), 1);
  EXPECT_EQ(manifest.cells_size(), 2);
  EXPECT_EQ(c.views().RunOf("tiny-1")->checkpoint_step(), 2u);
}

TEST_F(Reports, OldCheckpointsAreDropped) {
  for (const uint64_t step : {2, 4, 6}) c.Shards(kAb, "tiny-1", step);
  EXPECT_THAT(Checkpoints(), ElementsAre(4u, 6u));
  for (const std::string& name : kAb) {
    ASSERT_EQ(c.Count(name, v1::WorkerCommand::kDropCheckpoint), 1);
    EXPECT_EQ(c.Last(name, v1::WorkerCommand::kDropCheckpoint)->drop_checkpoint().step(), 2u);
  }
  c.Shards(kAb, "tiny-1", 2);  // superseded
  EXPECT_THAT(Checkpoints(), ElementsAre(4u, 6u));
}

TEST_F(Reports, ImpossibleFilesAreNotCommitted) {
  for (const auto& [name, sha] :
       std::vector<std::pair<std::string, std::string>>{{"../../etc/passwd", std::string(64, 'a')},
                                                        {"..", std::string(64, 'a')},
                                                        {"", std::string(64, 'a')},
                                                        {"stage-1", "short"}}) {
    for (const std::string& worker : kAb) {
      v1::WorkerMessage message = c.About("tiny-1");
      *message.mutable_shard() = ShardOf(2, 0);
      message.mutable_shard()->mutable_files(0)->set_name(name);
      message.mutable_shard()->mutable_files(0)->set_sha256(sha);
      c.Tick(c.Said(worker, message));
    }
  }
  EXPECT_TRUE(Checkpoints().empty());
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("names no files or impossible ones"));
}

TEST_F(Reports, LinkEventsAreToldOnce) {
  Link("a", 0, "suspect");
  Link("a", 0, "suspect");
  EXPECT_EQ(
      c.LastEvent("link"),
      "the link between worker a (stage 0) and worker b (stage 1) is suspect: silent for 3.0 s");
  EXPECT_EQ(c.views().RunOf("tiny-1")->links(0).state(), "suspect");
  EXPECT_EQ(c.views().Workers(c.now)[0].link_quality(), "suspect");
  Link("a", 5, "suspect");
  Link("a", 0, "healthy");
  EXPECT_THAT(c.LastEvent("link"), HasSubstr("is healthy again"));
  EXPECT_EQ(c.views().RunOf("tiny-1")->links(0).state(), "healthy");
  int told = 0;
  for (const v1::Event& event : c.events) told += event.kind() == "link";
  EXPECT_EQ(told, 2);
}

TEST_F(Reports, ForgottenMessagesAreTold) {
  Link("b", 0, "forgotten");
  EXPECT_EQ(
      c.LastEvent("link"),
      "the message buffers between worker b (stage 1) and worker a (stage 0) begin anew: they "
      "could not be brought back to the checkpoint of step 0, so the losses may differ from "
      "an unbroken run's");
  EXPECT_EQ(c.views().RunOf("tiny-1")->links(0).state(), "healthy");
}

TEST_F(Reports, ALostLinkIsToldWhenItIsLostAndWhenItIsHealed) {
  Link("a", 0, "suspect");
  Link("a", 0, "lost");
  EXPECT_EQ(c.LastEvent("link"),
            "the link between worker a (stage 0) and worker b (stage 1) is lost and being made "
            "again: connection reset");
  Link("b", 0, "lost");  // the other side: no news
  EXPECT_EQ(c.views().RunOf("tiny-1")->links(0).state(), "lost");
  EXPECT_EQ(c.views().Workers(c.now)[0].link_quality(), "lost");
  EXPECT_EQ(c.views().Workers(c.now)[1].link_quality(), "lost");
  Link("a", 0, "healed");
  EXPECT_EQ(c.views().RunOf("tiny-1")->links(0).state(), "lost");
  Link("b", 0, "healed");
  EXPECT_EQ(c.LastEvent("link"),
            "the link between worker b (stage 1) and worker a (stage 0) is healed after 3.0 s, 14 "
            "frames sent again");
  EXPECT_EQ(c.views().RunOf("tiny-1")->links(0).state(), "healthy");
  EXPECT_EQ(c.views().Workers(c.now)[0].link_quality(), "healthy");
  Link("b", 0, "healed");  // of no trouble that is known
  int told = 0;
  for (const v1::Event& event : c.events) told += event.kind() == "link";
  EXPECT_EQ(told, 3);
}

TEST_F(Reports, StatusHasSharesGoodputAndTimeLeft) {
  for (uint64_t step = 1; step <= 20; ++step) {
    v1::StepReport a = c.Report(step, 0, 2), b = c.Report(step, 1, 2);
    a.set_seconds(step == 15 ? 50.0 : 0.5);  // one slow step does not move the median
    a.set_forward_seconds(0.1);
    a.set_backward_seconds(0.2);
    a.set_wait_gradient_seconds(0.125);
    v1::LinkUse& use = *a.add_links();
    use.set_payload_bytes_sent(125'000);
    use.set_send_busy_seconds(0.25);
    v1::LinkUse& up = *b.add_links();
    up.set_payload_bytes_sent(62'500);
    c.Step("a", "tiny-1", a);
    c.Step("b", "tiny-1", b);
  }
  const v1::RunStatus status = *c.views().RunOf("tiny-1");
  EXPECT_EQ(status.state(), "running");
  EXPECT_EQ(status.name(), "tiny");
  EXPECT_EQ(status.steps(), 100u);
  EXPECT_EQ(status.step_seconds(), 0.5);
  EXPECT_DOUBLE_EQ(status.tokens_per_second(), 2 * 64 / 0.5);
  EXPECT_DOUBLE_EQ(status.seconds_left(), 40.0);
  EXPECT_EQ(status.schedule(), "link-aware");
  EXPECT_TRUE(status.has_plan());
  EXPECT_FALSE(c.views().Runs()[0].has_plan());
  ASSERT_EQ(status.stages_size(), 2);
  EXPECT_EQ(status.stages(0).state(), "running");
  EXPECT_TRUE(status.stages(0).connected());
  EXPECT_NEAR(status.stages(0).compute_share(), 0.6, 1e-9);
  EXPECT_NEAR(status.stages(0).wait_gradient_share(), 0.25, 1e-9);
  EXPECT_EQ(status.stages(0).step(), 20u);
  EXPECT_EQ(status.stages(0).layers() + status.stages(1).layers(), 4u);
  ASSERT_EQ(status.links_size(), 2);
  EXPECT_EQ(status.links(0).direction(), "forward");
  EXPECT_EQ(status.links(0).from_worker(), "a");
  EXPECT_DOUBLE_EQ(status.links(0).goodput_bits_per_second(), 2e6);
  EXPECT_DOUBLE_EQ(status.links(0).busy_share(), 0.5);
  EXPECT_EQ(status.links(0).waits_for(), "egress");
  EXPECT_EQ(status.links(1).direction(), "backward");
  EXPECT_EQ(status.links(1).from_worker(), "b");
  EXPECT_DOUBLE_EQ(status.links(1).goodput_bits_per_second(), 1e6);
}

TEST_F(Reports, SequenceGrowsWithEveryChange) {
  const uint64_t before = c.views().sequence();
  c.Step("a", "tiny-1", c.Report(1, 0, 2));
  EXPECT_GT(c.views().sequence(), before);
  EXPECT_EQ(c.views().RunOf("tiny-1")->sequence(), c.views().sequence());
  const uint64_t after = c.views().sequence();
  c.Tick();
  EXPECT_EQ(c.views().sequence(), after);
}

TEST_F(Reports, LogLinesGoToTheirRun) {
  v1::WorkerMessage message = c.About("tiny-1");
  message.mutable_log()->set_text("hello");
  c.Tick(c.Said("a", message));
  bool found = false;
  for (const Write& write : c.last.writes) {
    const auto* log = std::get_if<write::WorkerLog>(&write);
    found = found || (log != nullptr && log->worker_name == "a" && log->line.text() == "hello");
  }
  EXPECT_TRUE(found);
}

TEST_F(Reports, EventNumbersHaveNoGaps) {
  c.Steps(kAb, "tiny-1", 1);
  c.Shards(kAb, "tiny-1", 1);
  for (size_t i = 0; i < c.events.size(); ++i) EXPECT_EQ(c.events[i].sequence(), i + 1);
}

}  // namespace
}  // namespace longhaul::coordinator
