#include "coordinator/state/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Resume : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    for (uint64_t step = 1; step <= 3; ++step) c.Steps(kAb, "tiny-1", step);
  }
  void FailAtStep3(bool with_checkpoint) {
    if (with_checkpoint) c.Shards(kAb, "tiny-1", 2);
    c.Error("a", "tiny-1", "boom");
    c.Forget();
  }
  void End(bool with_checkpoint) {
    c.Steps(kAb, "tiny-1", 4);
    if (with_checkpoint) c.Shards(kAb, "tiny-1", 4);
    c.Finished("a", "tiny-1", 4);
    c.Finished("b", "tiny-1", 4);
    c.Forget();
  }
  Status Submit(const RunSpec& spec) {
    c.Tick(SubmitOf(spec, "unused", 7, true));
    return c.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  }
  Coordinator c;
};

TEST_F(Resume, SameIdNextEpochFromTheNewestCheckpoint) {
  FailAtStep3(true);
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 9;
  spec.checkpoint.every = 5;
  spec.links.codecs.forward = "bf16";
  ASSERT_TRUE(Submit(spec).ok());
  const v1::SubmitReply reply = *c.LastReply<command::Reply<v1::SubmitReply>>()->reply;
  EXPECT_EQ(reply.run_id(), "tiny-1");
  EXPECT_EQ(reply.resume_step(), 2u);
  EXPECT_EQ(reply.notes(0), "goes on from the checkpoint of step 2");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 2u);
  c.ToPreparing(kAb, "tiny-1");
  const v1::Assign assign = c.Last("b", v1::WorkerCommand::kAssign)->assign();
  EXPECT_EQ(assign.assignment().start_step(), 2u);
  EXPECT_EQ(assign.assignment().epoch(), 2u);
  ASSERT_EQ(assign.resume_files_size(), 1);
  EXPECT_EQ(assign.resume_files(0).holders(0).worker_id(), "id-b");
  c.Ready("a", "tiny-1", 2);
  c.Ready("b", "tiny-1", 2);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Steps(kAb, "tiny-1", 3);
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 3u);
  EXPECT_EQ(c.steps["tiny-1"][3].epoch(), 2u);
}

TEST_F(Resume, FromScratchWithoutACheckpoint) {
  FailAtStep3(false);
  ASSERT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  EXPECT_EQ(c.LastReply<command::Reply<v1::SubmitReply>>()->reply->notes(0),
            "no checkpoint was committed: starts from scratch");
  c.ToRunning(kAb, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
}

TEST_F(Resume, KeepsTheSplitAndWaitsForItsWorkers) {
  FailAtStep3(true);
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  c.Join("aa");  // would be next in order, but has no shard
  ASSERT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  EXPECT_EQ(
      c.ReasonOf("tiny-1"),
      "waits for worker b, which is not connected: it holds stage 1 of the checkpoint of step "
      "2");
  c.Join(HelloOf("b", "2"));  // a new process has the old one's files
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.ToRunning(kAb, "tiny-1", 2);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.records["tiny-1"].plan->assignment.cells[1].incarnation, Incarnation("b-2"));
}

TEST_F(Resume, WaitsForBusyWorkers) {
  FailAtStep3(true);
  c.Tick(SubmitOf(SmallSpec("other", 1), "other-1", 3));
  ASSERT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("needs 2 free workers, 2 connected: a (busy with other-1), b"));
}

TEST_F(Resume, RefusesAnActiveRun) {
  const Status status = Submit(SmallSpec("tiny", 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("run tiny-1 is running already"));
}

TEST_F(Resume, RefusesAnUnknownName) {
  EXPECT_EQ(Submit(SmallSpec("nobody", 2)).code(), absl::StatusCode::kNotFound);
}

TEST_F(Resume, ADoneRunGoesOnForMoreSteps) {
  End(/*with_checkpoint=*/true);
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 9;
  ASSERT_TRUE(Submit(spec).ok());
  const v1::SubmitReply reply = *c.LastReply<command::Reply<v1::SubmitReply>>()->reply;
  EXPECT_EQ(reply.run_id(), "tiny-1");
  EXPECT_EQ(reply.resume_step(), 4u);
  EXPECT_EQ(reply.notes(1),
            "the learning rate is from here on that of the schedule cosine over 9 steps; so far it "
            "was that over 4");
  c.ToRunning(kAb, "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
  for (uint64_t step = 5; step <= 9; ++step) c.Steps(kAb, "tiny-1", step);
  c.Finished("a", "tiny-1", 9);
  c.Finished("b", "tiny-1", 9);
  EXPECT_EQ(c.StateOf("tiny-1"), "done");
}

TEST_F(Resume, ADoneRunNeedsMoreStepsAndACheckpoint) {
  End(/*with_checkpoint=*/false);
  RunSpec spec = SmallSpec("tiny", 2);
  EXPECT_EQ(Submit(spec).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(Submit(spec))),
              HasSubstr("run tiny-1 is done after its 4 steps and this file ends at train.steps: "
                        "4; raise train.steps to go on"));
  spec.train.steps = 9;
  EXPECT_THAT(std::string(Message(Submit(spec))),
              HasSubstr("is done and left no checkpoint to go on from"));
  EXPECT_EQ(c.StateOf("tiny-1"), "done");
}

TEST_F(Resume, AnUnfinishedRunComesBeforeOneThatIsDone) {
  FailAtStep3(true);
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-2", 8));
  c.ToRunning(kAb, "tiny-2");
  for (uint64_t step = 1; step <= 4; ++step) c.Steps(kAb, "tiny-2", step);
  c.Shards(kAb, "tiny-2", 4);
  c.Finished("a", "tiny-2", 4);
  c.Finished("b", "tiny-2", 4);
  ASSERT_EQ(c.StateOf("tiny-2"), "done");
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 9;
  ASSERT_TRUE(Submit(spec).ok());
  EXPECT_EQ(c.LastReply<command::Reply<v1::SubmitReply>>()->reply->run_id(), "tiny-1");
}

TEST_F(Resume, RefusesAFileThatEndsBeforeTheCheckpoint) {
  FailAtStep3(true);
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 2;
  EXPECT_THAT(std::string(Message(Submit(spec))), HasSubstr("raise train.steps"));
}

TEST_F(Resume, OtherDataIsFoundByItsHash) {
  FailAtStep3(true);
  ASSERT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  DataSet data = SmallData();
  data.token_file_sha256 = std::string(64, 'e');
  c.Tick(event::DataPrepared{RunId("tiny-1"), data});
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("a resumed run needs the same data"));
}

TEST_F(Resume, MessagesOfTheOldEpochAreDropped) {
  FailAtStep3(true);
  ASSERT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  c.ToRunning(kAb, "tiny-1", 2);
  v1::WorkerMessage message = c.About("tiny-1", 1);
  message.mutable_error()->set_message("from the past");
  c.Tick(c.Said("a", message));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("dropped a message of epoch 1 from worker a"));
}

TEST(CheckResumable, NamesEveryKeyThatDiffers) {
  RunRecord record;
  record.id = RunId("tiny-1");
  record.spec = SmallSpec("tiny", 2);
  const auto refused = [&](const std::function<void(RunSpec&)>& change) {
    RunSpec spec = record.spec;
    change(spec);
    return std::string(Message(CheckResumable(record, spec, {})));
  };
  EXPECT_EQ(refused([](RunSpec&) {}), "");
  EXPECT_EQ(refused([](RunSpec& s) {
              s.train.steps = 99;
              s.checkpoint.keep = 9;
              s.validation.every = 1;
              s.links.codecs = {"bf16", "bf16"};
              s.pipeline.stages = 1;  // no checkpoint yet
            }),
            "");
  EXPECT_THAT(refused([](RunSpec& s) { s.model.hidden = 128; }),
              HasSubstr("model.hidden is 64 in the run and 128 in this file"));
  EXPECT_THAT(refused([](RunSpec& s) { s.model.layers = 8; }), HasSubstr("model.layers"));
  EXPECT_THAT(refused([](RunSpec& s) { s.model.family = ModelFamily::kLlama; }),
              HasSubstr("model.family is gpt in the run and llama in this file"));
  EXPECT_THAT(refused([](RunSpec& s) { s.model.vocabulary = 300; }),
              HasSubstr("model.vocabulary is auto in the run and 300 in this file"));
  EXPECT_THAT(refused([](RunSpec& s) { s.data.seed = 8; }), HasSubstr("data.seed"));
  EXPECT_THAT(refused([](RunSpec& s) { s.validation.share = 0.5; }), HasSubstr("validation.share"));
  EXPECT_THAT(refused([](RunSpec& s) { s.train.dtype = ComputeDtype::kBf16; }),
              HasSubstr("train.dtype is fp32 in the run and bf16"));
  EXPECT_EQ(refused([](RunSpec& s) { s.train.dtype = ComputeDtype::kAuto; }), "");
  EXPECT_THAT(refused([](RunSpec& s) { s.train.optimizer.kind = OptimizerKind::kMuon; }),
              HasSubstr("train.optimizer.kind is adamw in the run and muon in this file"));
  EXPECT_THAT(refused([](RunSpec& s) { s.group.shared_channels = 0.5; }),
              HasSubstr("group.p is 1 in the run and 0.5 in this file"));
  EXPECT_THAT(refused([](RunSpec& s) {
                s.train.seed = 8;
                s.train.microbatches = 9;
                s.pipeline.threads_per_stage = 3;
                s.pipeline.slices = 2;
              }),
              AllOf(HasSubstr("train.seed"), HasSubstr("train.microbatches"),
                    HasSubstr("pipeline.threads_per_stage"), HasSubstr("pipeline.slices is 1")));
}

// Its other workers might be of another kind.
TEST_F(Resume, AFileThatLeavesTheDtypeOpenTakesTheRuns) {
  FailAtStep3(true);
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.dtype = ComputeDtype::kAuto;
  ASSERT_TRUE(Submit(spec).ok());
  c.ToPreparing(kAb, "tiny-1");
  const std::string yaml =
      c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().run_yaml();
  EXPECT_THAT(yaml, HasSubstr("dtype: fp32"));
}

// Other workers that a resume finds may have more devices.
TEST(ResumeOfRanks, KeepsTheNumberThatTheFirstPlanChose) {
  Coordinator c;
  for (const char* name : {"a", "b"}) {
    v1::Hello hello = HelloOf(name);
    *hello.add_devices() = hello.devices(0);
    c.Join(hello);
  }
  RunSpec spec = SmallSpec("tiny", 2);
  spec.group.tensor_auto = true;
  spec.group.forward = GroupCollective::kAuto;
  c.Tick(SubmitOf(spec, "tiny-1"));
  EXPECT_THAT(c.Last("a", v1::WorkerCommand::kMeasure)->measure().run_yaml(),
              HasSubstr("tensor: auto"));
  c.ToRunning(kAb, "tiny-1");
  const GroupSpec& chosen = c.records.at("tiny-1").spec.group;
  EXPECT_EQ(chosen.tensor, 2u);
  EXPECT_FALSE(chosen.tensor_auto);
  EXPECT_EQ(chosen.forward, GroupCollective::kAuto);
  EXPECT_THAT(c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().run_yaml(),
              HasSubstr("tensor: 2"));
  EXPECT_EQ(c.views().RunOf("tiny-1")->stages(0).tensor_ranks(), 2u);

  for (uint64_t step = 1; step <= 3; ++step) c.Steps(kAb, "tiny-1", step);
  c.Shards(kAb, "tiny-1", 2);
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  c.Tick(SubmitOf(spec, "unused", 7, true));
  ASSERT_TRUE(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
  EXPECT_EQ(c.records.at("tiny-1").spec.group, spec.group.Settled(2, 1));
}

TEST(ResumeOfSlices, KeepsTheNumberThatTheFirstPlanChose) {
  Coordinator c;
  for (const char* name : {"a", "b"}) c.Join(HelloOf(name));
  RunSpec spec = SmallSpec("tiny", 2);
  spec.pipeline.slices.reset();
  c.Tick(SubmitOf(spec, "tiny-1"));
  c.ToRunning(kAb, "tiny-1");
  const std::optional<uint32_t> chosen = c.records.at("tiny-1").spec.pipeline.slices;
  ASSERT_TRUE(chosen.has_value());
  const auto assigned = [&] {
    return c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment();
  };
  EXPECT_EQ(assigned().slices(), *chosen);
  EXPECT_THAT(assigned().run_yaml(), ::testing::Not(HasSubstr("slices: auto")));
  for (uint64_t step = 1; step <= 3; ++step) c.Steps(kAb, "tiny-1", step);
  c.Shards(kAb, "tiny-1", 2);
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  c.Tick(SubmitOf(spec, "unused", 7, true));
  ASSERT_TRUE(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
  EXPECT_EQ(c.records.at("tiny-1").spec.pipeline.slices, chosen);
}

TEST(ResumeOfRanks, KeepsThePartsOfExpertsUnlessTheFileHasOtherRanks) {
  Coordinator c;
  for (const char* name : {"a", "b"}) {
    v1::Hello hello = HelloOf(name);
    *hello.add_devices() = hello.devices(0);
    c.Join(hello);
  }
  RunSpec spec = SmallSpec("tiny", 2);
  spec.model.family = ModelFamily::kMoe;
  spec.model.kv_heads = spec.model.heads;
  spec.model.experts = 4;
  spec.model.experts_per_token = 1;
  spec.model.expert_intermediate = 64;
  spec.group = {.tensor = 2, .expert_auto = true};
  c.Tick(SubmitOf(spec, "tiny-1"));
  c.ToRunning(kAb, "tiny-1");
  // Two parts were not timed.
  EXPECT_EQ(c.records.at("tiny-1").spec.group, (GroupSpec{.tensor = 2}));
  EXPECT_EQ(c.views().RunOf("tiny-1")->stages(0).expert_ranks(), 1u);
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  c.Tick(SubmitOf(spec, "unused", 7, true));
  ASSERT_TRUE(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
  EXPECT_EQ(c.records.at("tiny-1").spec.group, (GroupSpec{.tensor = 2}));
  c.ToRunning(kAb, "tiny-1");

  c.Error("a", "tiny-1", "boom");
  c.Forget();
  spec.group = {.expert = 2, .tensor_auto = true};
  c.Tick(SubmitOf(spec, "unused", 8, true));
  EXPECT_EQ(c.records.at("tiny-1").spec.group, spec.group) << "left to the next plan";
}

TEST(CheckResumable, NamesEveryKeyOfFamilyLlamaThatDiffers) {
  RunRecord record;
  record.spec = SmallSpec("tiny", 2);
  record.spec.model.family = ModelFamily::kLlama;
  record.spec.model.kv_heads = 2;
  record.spec.model.intermediate = 96;
  record.spec.model.norm_epsilon = 1e-6;
  RunSpec spec = record.spec;
  EXPECT_TRUE(CheckResumable(record, spec, {}).ok());
  spec.model.kv_heads = 1;
  spec.model.intermediate = 128;
  spec.model.rope_theta = 1e6;
  spec.model.norm_epsilon = 1e-5;
  spec.model.qkv_bias = true;
  EXPECT_THAT(
      std::string(Message(CheckResumable(record, spec, {}))),
      HasSubstr("model.norm_epsilon is 1e-06 in the run and 1e-05 in this file; model.kv_heads is "
                "2 in the run and 1 in this file; model.intermediate is 96 in the run and 128 in "
                "this file; model.rope_theta is 10000 in the run and 1000000 in this file; "
                "model.qkv_bias is false in the run and true in this file;"));
}

TEST(CheckResumable, ComparesDataFilesByContents) {
  RunRecord record;
  record.spec = SmallSpec("tiny", 2);
  v1::DataFile file;
  file.set_name("corpus.txt");
  file.set_sha256("1");
  record.data_files = {file};
  v1::DataFile moved = file;
  moved.set_name("elsewhere/corpus.txt");
  EXPECT_TRUE(CheckResumable(record, record.spec, {moved}).ok());
  moved.set_sha256("2");
  EXPECT_THAT(std::string(Message(CheckResumable(record, record.spec, {moved}))),
              HasSubstr("'elsewhere/corpus.txt' differ"));
  EXPECT_THAT(std::string(Message(CheckResumable(record, record.spec, {file, file}))),
              HasSubstr("matches 1 files in the run and 2 now"));
}

TEST(CheckResumable, TheSplitMayChange) {
  RunRecord record;
  record.spec = SmallSpec("tiny", 2);
  record.checkpoints.emplace_back();
  record.checkpoints.back().add_cells();
  record.checkpoints.back().add_cells();
  RunSpec spec = record.spec;
  spec.pipeline.stages = 3;
  EXPECT_TRUE(CheckResumable(record, spec, {}).ok());
}

}  // namespace
}  // namespace longhaul::coordinator
