// Shards are hashed before a run resumes; damage, other workers, other splits, copies, pruning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/ledger/manifests.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void CutShort(v1::ShardState& state) {
  state.set_problem("it was cut short: expected 10 bytes, it has 4");
  state.set_copied(false);
}

class Checkpoints : public ::testing::Test {
 protected:
  // "tiny-1" on a and b with checkpoints of steps 1 and 2, failed at step 3.
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    spec.checkpoint.every = 1;
  }
  void Train(char digit_of_second = 'a') {
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    for (uint64_t step = 1; step <= 2; ++step) {
      c.Steps(kAb, "tiny-1", step);
      c.Shards(kAb, "tiny-1", step, step == 2 ? digit_of_second : 'a');
    }
    c.Steps(kAb, "tiny-1", 3);
  }
  void TrainAndFail() {
    Train();
    c.Error("a", "tiny-1", "boom");
    c.Forget();
  }
  Status Resume(uint64_t from_step = 0) {
    event::Submitted submitted = SubmitOf(spec, "unused", 7, true);
    submitted.submit.set_from_step(from_step);
    c.Tick(submitted);
    return c.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  }
  v1::CheckpointsReply List(bool verify) {
    c.Tick(event::CheckpointsAsked{RequestId(8), "tiny-1", verify});
    return LastList();
  }
  v1::CheckpointsReply LastList() const {
    const auto* reply = c.LastReply<command::Reply<v1::CheckpointsReply>>();
    return reply == nullptr ? v1::CheckpointsReply() : *reply->reply;
  }
  std::vector<uint64_t> StepsKept() const {
    std::vector<uint64_t> steps;
    for (const auto& manifest : c.records.at("tiny-1").checkpoints)
      steps.push_back(manifest.step());
    return steps;
  }
  std::string Events(const std::string& kind) const {
    std::string all;
    for (const v1::Event& event : c.events) {
      if (event.kind() == kind) all += event.text() + "\n";
    }
    return all;
  }
  RunSpec spec = SmallSpec("tiny", 2);
  Coordinator c;
};

TEST_F(Checkpoints, AreHashedBeforeARunResumes) {
  TrainAndFail();
  ASSERT_TRUE(Resume().ok());
  for (const std::string& worker : kAb) {
    const v1::WorkerCommand* asked = c.Last(worker, v1::WorkerCommand::kCheckShards);
    ASSERT_NE(asked, nullptr);
    EXPECT_EQ(asked->check_shards().step(), 2u);
    ASSERT_EQ(asked->check_shards().files_size(), 1);
    EXPECT_EQ(asked->check_shards().files(0).holders(0).worker_id(), "id-" + worker);
    EXPECT_FALSE(asked->check_shards().copy());
  }
  c.Data("tiny-1");
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 2);
  c.Checked("a");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Checked("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().start_step(), 2u);
}

TEST_F(Checkpoints, ADamagedOneIsNamedAndAnOlderOneTaken) {
  TrainAndFail();
  ASSERT_TRUE(Resume().ok());
  c.Data("tiny-1");
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 2);
  c.Checked("a");
  c.Checked("b", CutShort);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_THAT(Events("checkpoint"),
              AllOf(HasSubstr("worker b: stage-1.params.safetensors of the checkpoint of step 2 is "
                              "damaged: it was cut short: expected 10 bytes, it has 4"),
                    HasSubstr("the checkpoint of step 2 is damaged (worker b: "),
                    HasSubstr("goes on from that of step 1: steps 2 to 2 are trained again")));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 1u);
  // The older one is hashed too. Until it is adopted, nothing is dropped.
  EXPECT_THAT(StepsKept(), ElementsAre(1u, 2u));
  c.Checked("a");
  c.Checked("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_THAT(StepsKept(), ElementsAre(1u));
  EXPECT_EQ(c.Last("b", v1::WorkerCommand::kDropCheckpoint)->drop_checkpoint().step(), 2u);
  EXPECT_EQ(c.Last("b", v1::WorkerCommand::kAssign)->assign().assignment().start_step(), 1u);
  // Step 2 can be committed again.
  for (const std::string& worker : kAb) c.Ready(worker, "tiny-1", 1);
  c.Steps(kAb, "tiny-1", 2);
  c.Shards(kAb, "tiny-1", 2);
  EXPECT_THAT(StepsKept(), ElementsAre(1u, 2u));
}

TEST_F(Checkpoints, WithoutAWholeOneTheRunFailsAndKeepsThemAll) {
  TrainAndFail();
  ASSERT_TRUE(Resume().ok());
  c.Data("tiny-1");
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 2);
  for (int round = 0; round < 2; ++round) {
    c.Checked("a");
    c.Checked("b", CutShort);
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              AllOf(HasSubstr("the checkpoint of step 1 is damaged (worker b: stage-1.params"),
                    HasSubstr("there is no older one that is whole")));
  EXPECT_THAT(StepsKept(), ElementsAre(1u, 2u));
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kDropCheckpoint), 0);
  // Files that were put back are looked at anew.
  c.Forget();
  ASSERT_TRUE(Resume().ok());
  EXPECT_EQ(c.Last("b", v1::WorkerCommand::kCheckShards)->check_shards().step(), 2u);
  c.ToRunning(kAb, "tiny-1", 2);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Checkpoints, FromStepIsThatStepOrNone) {
  TrainAndFail();
  EXPECT_THAT(std::string(Message(Resume(3))),
              HasSubstr("run tiny-1 has no checkpoint of step 3; it has those of steps 1, 2"));
  ASSERT_TRUE(Resume(1).ok());
  EXPECT_THAT(StepsKept(), ElementsAre(1u, 2u));
  c.ToPreparing(kAb, "tiny-1");
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().start_step(), 1u);
  EXPECT_THAT(StepsKept(), ElementsAre(1u));
}

TEST_F(Checkpoints, FromADamagedStepIsRefused) {
  TrainAndFail();
  ASSERT_TRUE(Resume(2).ok());
  c.Data("tiny-1");
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 2);
  c.Checked("a", CutShort);
  c.Checked("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              AllOf(HasSubstr("the checkpoint of step 2 is damaged (worker a: "),
                    HasSubstr("--resume --from-step 1 goes on from step 1")));
}

TEST_F(Checkpoints, FromStepNeedsResume) {
  event::Submitted submitted = SubmitOf(spec, "tiny-9", 7);
  submitted.submit.set_from_step(2);
  c.Tick(submitted);
  EXPECT_EQ(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(Checkpoints, AFewerStagesFetchWhatOthersHold) {
  TrainAndFail();
  spec.pipeline.stages = 1;
  ASSERT_TRUE(Resume().ok());
  c.Data("tiny-1");
  c.Times("a", "tiny-1", 2);
  c.Checked("a");
  c.Checked("b");
  // b's shard has to come to a first.
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  const v1::CheckShards give = c.Last("b", v1::WorkerCommand::kCheckShards)->check_shards();
  EXPECT_TRUE(give.copy());
  const v1::TakeShards take = c.Last("a", v1::WorkerCommand::kTakeShards)->take_shards();
  EXPECT_EQ(take.check(), give.check());
  EXPECT_EQ(take.files_size(), 1);
  EXPECT_EQ(take.from().peer_name(), "b");
  EXPECT_EQ(give.to().peer_name(), "a");
  EXPECT_NE(take.from().dial(), give.to().dial());
  EXPECT_EQ(take.from().link_secret(), give.to().link_secret());
  EXPECT_FALSE(give.to().paced());
  EXPECT_THAT(Events("checkpoint"), HasSubstr("1 shards of the checkpoint of step 2 (10 B) move"));
  EXPECT_FALSE(c.views().ExpectsCopy(std::string(64, 'a'), 10)) << "nothing comes here";
  c.Checked("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  const v1::Assign assign = c.Last("a", v1::WorkerCommand::kAssign)->assign();
  EXPECT_EQ(assign.assignment().cells_size(), 1);
  ASSERT_EQ(assign.resume_files_size(), 2);
  EXPECT_TRUE(IsHeldBy(assign.resume_files(1), "id-a"));
}

TEST_F(Checkpoints, ACopyThatCannotBeSentFailsTheResume) {
  TrainAndFail();
  spec.pipeline.stages = 1;
  ASSERT_TRUE(Resume().ok());
  c.Data("tiny-1");
  c.Times("a", "tiny-1", 2);
  c.Checked("a");
  c.Checked("b");
  c.Checked("b", [](v1::ShardState& state) {
    state.set_copied(false);
    state.set_copy_error("its disk is full");
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b could not send stage-1.params.safetensors "
                        "of the checkpoint of step 2 to worker a: its disk is "
                        "full"));
}

TEST_F(Checkpoints, AHolderThatLeavesFailsTheResume) {
  TrainAndFail();
  spec.pipeline.stages = 1;
  ASSERT_TRUE(Resume().ok());
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b did not finish looking at its shards of the "
                        "checkpoint of step 2: closed"));
}

TEST_F(Checkpoints, AnAnswerThatNeverComesFailsTheResume) {
  TrainAndFail();
  ASSERT_TRUE(Resume().ok());
  c.Data("tiny-1");
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 2);
  for (int minute = 0; minute < 31 * 12 && c.StateOf("tiny-1") == "planning"; ++minute) {
    c.Advance(absl::Seconds(5));
    v1::WorkerMessage alive;
    alive.mutable_heartbeat();
    c.Tick(c.Said("a", alive), c.Said("b", alive));
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("did not finish looking at its shards"));
}

TEST_F(Checkpoints, AnOlderReachableOneIsOfferedWhileAWorkerIsAwaited) {
  spec.checkpoint.keep_copy = true;
  Train('b');
  // There are copies of step 1, and not yet of step 2.
  std::vector<v1::WorkerCommand> asked;
  for (const Command& command : c.commands) {
    const auto* to = std::get_if<command::ToWorker>(&command);
    if (to && to->message.has_check_shards() && to->message.check_shards().step() == 1) {
      asked.push_back(to->message);
    }
  }
  ASSERT_EQ(asked.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_shards_checked()->set_check(asked[i].check_shards().check());
    v1::ShardState& state = *message.mutable_shards_checked()->add_shards();
    state.set_name(asked[i].check_shards().files(0).name());
    state.set_copied(true);
    c.Tick(event::CopyStored{WorkerId("id-" + kAb[i]), asked[i].check_shards().files(0).sha256()},
           c.Said(kAb[i], message));
  }
  EXPECT_THAT(Events("checkpoint"),
              HasSubstr("the coordinator has a copy of the checkpoint of step 1"));
  c.Die("b", "tiny-1", {{"a", 0}});
  c.Join("z");
  ASSERT_TRUE(Resume().ok());
  EXPECT_EQ(c.ReasonOf("tiny-1"),
            "waits for worker b, which is not connected: it holds stage 1 of the checkpoint of "
            "step 2; to do without it, longhaul stop tiny-1 and longhaul submit run.yaml --resume "
            "--from-step 1");
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  ASSERT_TRUE(Resume(1).ok());
  // On another worker, from the coordinator's copies, which are hashed.
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  const auto* copies = c.LastReply<command::CheckCopies>();
  ASSERT_NE(copies, nullptr);
  EXPECT_EQ(copies->files.size(), 2u);
  c.Tick(event::CopiesChecked{copies->check, {"", ""}});
  c.ToPreparing({"a", "z"}, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  const v1::Assign assign = c.Last("z", v1::WorkerCommand::kAssign)->assign();
  ASSERT_EQ(assign.resume_files_size(), 1);
  EXPECT_EQ(assign.resume_files(0).holders(0).worker_id(), "id-b");
  EXPECT_TRUE(IsCopied(assign.resume_files(0)));
}

// A shard's hash is its worker's word: by that alone nobody gets what it is the hash of.
TEST_F(Checkpoints, AShardIsCopiedWhenItsBytesHaveCome) {
  spec.checkpoint.keep_copy = true;
  const WorkerId a("id-a"), b("id-b");
  const std::string hash(64, 'a');
  Train();
  const auto copied = [&] { return IsCopied(c.records.at("tiny-1").checkpoints.back().files(0)); };
  const v1::WorkerCommand asked = *c.Last("a", v1::WorkerCommand::kCheckShards);
  ASSERT_TRUE(asked.check_shards().copy());
  EXPECT_TRUE(c.views().NamedForWorker(a, hash).connected);
  EXPECT_FALSE(c.views().NamedForWorker(WorkerId("id-nobody"), hash).connected);
  // What another worker sends is no proof that this one has it.
  c.Tick(event::CopyStored{b, std::string(64, 'b')}, event::CopyStored{WorkerId("id-z"), hash});
  EXPECT_FALSE(copied());
  EXPECT_FALSE(c.views().HasCopyFor(a, hash));
  v1::WorkerMessage message = c.About("tiny-1");
  message.mutable_shards_checked()->set_check(asked.check_shards().check());
  v1::ShardState& state = *message.mutable_shards_checked()->add_shards();
  state.set_name(asked.check_shards().files(0).name());
  state.set_copied(true);
  c.Tick(c.Said("a", message));
  EXPECT_FALSE(copied());
  EXPECT_THAT(Events("checkpoint"),
              HasSubstr("worker a says that it has sent stage-0.params.safetensors of the "
                        "checkpoint of step 2, and it has not come"));
  for (const Naming& naming :
       {c.views().NamedForWorker(a, hash), c.views().NamedForOwner("", hash)}) {
    EXPECT_FALSE(naming.named);
    EXPECT_FALSE(naming.copied);
  }
  // Asked again when it comes back, it sends the bytes. They count although no answer comes.
  c.Tick(event::WorkerLeft{c.sessions["a"], "closed"});
  EXPECT_FALSE(c.views().NamedForWorker(a, hash).connected);
  c.Join("a");
  ASSERT_TRUE(c.views().ExpectsCopy(hash, 10, a));
  c.Tick(event::CopyStored{a, hash});
  EXPECT_TRUE(copied());
  EXPECT_TRUE(c.views().HasCopyFor(a, hash));
  EXPECT_FALSE(c.views().NamedForOwner("", hash).named);
  EXPECT_TRUE(c.views().NamedForOwner("", hash).copied);
}

TEST_F(Checkpoints, CopiesArePrunedWithTheirCheckpoint) {
  spec.checkpoint.keep_copy = true;
  spec.checkpoint.keep = 1;
  c.Tick(SubmitOf(spec, "tiny-1"));
  c.ToRunning(kAb, "tiny-1");
  c.Steps(kAb, "tiny-1", 1);
  c.Shards(kAb, "tiny-1", 1);
  for (const std::string& worker : kAb) c.Checked(worker);
  c.Forget();
  c.Steps(kAb, "tiny-1", 2);
  v1::WorkerMessage first = c.About("tiny-1");
  *first.mutable_shard() = ShardOf(2, 0);
  first.mutable_shard()->mutable_files(0)->set_sha256(std::string(64, 'b'));
  c.Tick(c.Said("a", first));
  // Not before the newer one is whole.
  EXPECT_EQ(c.LastReply<command::DropCopies>(), nullptr);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kDropCheckpoint), 0);
  v1::WorkerMessage second = c.About("tiny-1");
  *second.mutable_shard() = ShardOf(2, 1);
  second.mutable_shard()->mutable_files(0)->set_sha256(std::string(64, 'b'));
  c.Tick(c.Said("b", second));
  // Nor before it is safe as well.
  EXPECT_EQ(c.LastReply<command::DropCopies>(), nullptr);
  for (const std::string& worker : kAb) c.Checked(worker);
  ASSERT_NE(c.LastReply<command::DropCopies>(), nullptr);
  EXPECT_EQ(c.LastReply<command::DropCopies>()->sha256.size(), 2u);
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kDropCheckpoint)->drop_checkpoint().step(), 1u);
  EXPECT_THAT(StepsKept(), ElementsAre(2u));
}

TEST_F(Checkpoints, CopiesAreAskedForAgainWhenAWorkerComesBack) {
  spec.checkpoint.keep_copy = true;
  Train();
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  c.Forget();
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kCheckShards), 2);
  EXPECT_TRUE(c.Last("b", v1::WorkerCommand::kCheckShards)->check_shards().copy());
}

TEST_F(Checkpoints, ListsWhatIsCommitted) {
  Train();
  const v1::CheckpointsReply reply = List(false);
  EXPECT_EQ(reply.run_id(), "tiny-1");
  ASSERT_EQ(reply.checkpoints_size(), 2);
  const v1::CheckpointStatus& newest = reply.checkpoints(0);
  EXPECT_EQ(newest.step(), 2u);
  EXPECT_EQ(newest.state(), "committed");
  EXPECT_EQ(newest.bytes(), 20u);
  EXPECT_THAT(newest.layers(), ElementsAre(2u, 2u));
  ASSERT_EQ(newest.shards_size(), 2);
  EXPECT_EQ(newest.shards(1).holders(0).worker_name(), "b");
  EXPECT_TRUE(newest.shards(1).holders(0).connected());
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  const v1::CheckpointsReply later = List(false);
  EXPECT_EQ(later.checkpoints(0).state(), "unreachable");
  EXPECT_THAT(later.checkpoints(0).detail(), HasSubstr("worker b"));
  c.Tick(event::CheckpointsAsked{RequestId(9), "nobody", false});
  EXPECT_EQ(c.LastReply<command::Reply<v1::CheckpointsReply>>()->reply.status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(Checkpoints, VerifyWaitsForEveryHolder) {
  Train();
  c.Forget();
  c.Tick(event::CheckpointsAsked{RequestId(8), "tiny-1", true});
  EXPECT_EQ(c.LastReply<command::Reply<v1::CheckpointsReply>>(), nullptr);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  // Each is asked about both checkpoints.
  std::vector<Command> asked = c.commands;
  for (const Command& command : asked) {
    const auto* to = std::get_if<command::ToWorker>(&command);
    if (to == nullptr || !to->message.has_check_shards()) continue;
    EXPECT_EQ(c.LastReply<command::Reply<v1::CheckpointsReply>>(), nullptr);
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_shards_checked()->set_check(to->message.check_shards().check());
    const v1::CheckpointFile& file = to->message.check_shards().files(0);
    v1::ShardState& state = *message.mutable_shards_checked()->add_shards();
    state.set_name(file.name());
    if (file.holders(0).worker_id() == "id-b" && to->message.check_shards().step() == 2) {
      state.set_problem("it is missing");
    }
    c.Tick(c.Said(file.holders(0).worker_id() == "id-a" ? "a" : "b", message));
  }
  const v1::CheckpointsReply reply = LastList();
  ASSERT_EQ(reply.checkpoints_size(), 2);
  EXPECT_TRUE(reply.verified());
  EXPECT_EQ(reply.checkpoints(0).state(), "damaged");
  EXPECT_EQ(reply.checkpoints(0).detail(), "worker b: stage-1.params.safetensors: it is missing");
  EXPECT_EQ(reply.checkpoints(1).state(), "whole");
  // What was found is said to whoever has to resume.
  c.Error("a", "tiny-1", "boom");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("--resume --from-step 1 goes on from step 1"));
}

TEST_F(Checkpoints, VerifyGoesOnWithoutAWorkerThatLeaves) {
  Train();
  c.Forget();
  c.Tick(event::CheckpointsAsked{RequestId(8), "tiny-1", true});
  c.Tick(event::WorkerLeft{c.sessions["a"], "closed"});
  EXPECT_EQ(c.LastReply<command::Reply<v1::CheckpointsReply>>(), nullptr);
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  ASSERT_EQ(LastList().checkpoints_size(), 2);
  EXPECT_EQ(LastList().checkpoints(0).state(), "unreachable");
}

TEST_F(Checkpoints, AnswersThatNobodyAskedForDoNothing) {
  Train();
  v1::WorkerMessage message = c.About("tiny-1");
  message.mutable_shards_checked()->set_check(1);
  v1::ShardState& state = *message.mutable_shards_checked()->add_shards();
  state.set_name("stage-1.params.safetensors");
  state.set_problem("made up");
  c.Tick(c.Said("b", message));
  EXPECT_EQ(List(false).checkpoints(0).state(), "committed");
  c.Tick(event::CopiesChecked{1, {"made up"}});
  EXPECT_EQ(List(false).checkpoints(0).state(), "committed");
}

}  // namespace
}  // namespace longhaul::coordinator
