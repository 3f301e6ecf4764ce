// Programs that run files name, after checkpoints: when the state machine asks for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HooksTest : public ::testing::Test {
 protected:
  static StateOptions Allowed() { return {.allow_hooks = true}; }
  void SetUp() override {
    spec_.hooks.on_checkpoint = {"evaluate", "--all"};
    spec_.train.steps = 100;
    for (const std::string& worker : kAb) c_.Join(worker);
  }
  void Begin() {
    c_.Tick(SubmitOf(spec_, "tiny-1"));
    c_.ToRunning(kAb, "tiny-1");
    c_.Forget();
  }
  // The stages have written their shards. Each checkpoint has content of its own.
  void Commit(uint64_t step, char digit) {
    c_.Steps(kAb, "tiny-1", step);
    c_.Shards(kAb, "tiny-1", step, digit);
  }
  void Send() {
    for (const std::string& worker : kAb) c_.Checked(worker);
  }
  void End(uint64_t step, const std::string& output = "") {
    c_.Tick(event::HookEnded{.run = RunId("tiny-1"),
                             .step = step,
                             .ok = true,
                             .how = "ended with exit code 0",
                             .output = output});
  }
  // Steps of the hooks that the shell was told to run.
  std::vector<uint64_t> Asked() const {
    std::vector<uint64_t> steps;
    for (const Command& command : c_.commands) {
      if (const auto* hook = std::get_if<command::RunHook>(&command)) steps.push_back(hook->step);
    }
    return steps;
  }

  RunSpec spec_ = SmallSpec("tiny", 2);
  Coordinator c_{{}, Allowed()};
};

TEST_F(HooksTest, RunsWhenTheParametersHaveCome) {
  Begin();
  Commit(2, 'a');
  EXPECT_TRUE(c_.Last("a", v1::WorkerCommand::kCheckShards)->check_shards().copy());
  c_.Checked("a");
  EXPECT_TRUE(Asked().empty());
  c_.Checked("b");
  ASSERT_THAT(Asked(), ElementsAre(2));
  const auto* hook = c_.LastReply<command::RunHook>();
  EXPECT_EQ(hook->files.size(), 2);
  EXPECT_EQ(hook->vocabulary, 256);
  EXPECT_EQ(hook->spec.hooks.on_checkpoint, spec_.hooks.on_checkpoint);
  EXPECT_EQ(c_.LastEvent("hook"), "the hook runs on the checkpoint of step 2");
  End(2, "first\n{\"accuracy\": 0.7}\n");
  EXPECT_EQ(c_.LastEvent("hook"),
            "the hook on the checkpoint of step 2 ended with exit code 0: {\"accuracy\": 0.7}");
  std::vector<std::string> lines;
  for (const Write& write : c_.last.writes) {
    if (const auto* log = std::get_if<write::WorkerLog>(&write)) {
      EXPECT_EQ(log->worker_name, "hook");
      lines.push_back(log->line.text());
    }
  }
  EXPECT_THAT(lines, ElementsAre("first", "{\"accuracy\": 0.7}"));
  EXPECT_EQ(c_.StateOf("tiny-1"), "running");
}

TEST_F(HooksTest, TheNewestCheckpointWaits) {
  Begin();
  Commit(2, 'a');
  Send();
  Commit(4, 'b');
  Commit(6, 'd');
  EXPECT_THAT(Asked(), ElementsAre(2));
  EXPECT_EQ(c_.LastEvent("hook"), "the checkpoint of step 4 gets no hook: that of step 6 is newer");
  End(4);  // not the one that runs
  EXPECT_EQ(c_.Count("a", v1::WorkerCommand::kCheckShards), 1);
  End(2);
  Send();
  EXPECT_THAT(Asked(), ElementsAre(2, 6));
}

TEST_F(HooksTest, AWorkerThatIsAwayIsWaitedFor) {
  Begin();
  c_.Shards({"a"}, "tiny-1", 2);
  v1::WorkerMessage last = c_.About("tiny-1");
  *last.mutable_shard() = ShardOf(2, 1);
  const auto said = c_.Said("b", last);
  c_.Steps(kAb, "tiny-1", 2);
  c_.Tick(said, event::WorkerLeft{c_.sessions.at("b"), "closed"});
  c_.Checked("a");
  EXPECT_THAT(c_.LastEvent("hook"), HasSubstr("waits for worker b, which holds stage-1"));
  EXPECT_TRUE(Asked().empty());
  c_.Join(HelloAt("b", "tiny-1", 1));
  c_.Checked("b");
  EXPECT_THAT(Asked(), ElementsAre(2));
}

TEST_F(HooksTest, AWorkerThatCannotSendIsAskedThreeTimes) {
  Begin();
  Commit(2, 'a');
  c_.Checked("a");
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(c_.Count("b", v1::WorkerCommand::kCheckShards), attempt + 1);
    c_.Checked("b", [](v1::ShardState& shard) {
      shard.set_copied(false);
      shard.set_copy_error("no way out");
    });
  }
  EXPECT_TRUE(Asked().empty());
  EXPECT_EQ(c_.Count("b", v1::WorkerCommand::kCheckShards), 3);
  EXPECT_THAT(c_.LastEvent("hook"),
              AllOf(HasSubstr("step 2 gets no hook"), HasSubstr("no way out")));
  Commit(4, 'b');
  Send();
  EXPECT_THAT(Asked(), ElementsAre(4));
}

TEST_F(HooksTest, CopiesThatComeAnywayAreWaitedFor) {
  spec_.checkpoint.keep_copy = true;
  Begin();
  Commit(2, 'a');
  EXPECT_EQ(c_.Count("a", v1::WorkerCommand::kCheckShards), 1);
  Send();
  EXPECT_EQ(c_.Count("a", v1::WorkerCommand::kCheckShards), 1);
  EXPECT_THAT(Asked(), ElementsAre(2));
}

TEST_F(HooksTest, TheLastCheckpointOfARunThatIsDone) {
  spec_.train.steps = 2;
  Begin();
  Commit(2, 'a');
  for (const std::string& worker : kAb) c_.Finished(worker, "tiny-1", 2);
  EXPECT_EQ(c_.StateOf("tiny-1"), "done");
  Send();
  EXPECT_THAT(Asked(), ElementsAre(2));
  c_.Tick(event::RemoveAsked{RequestId(9), "tiny-1"});
  End(2);  // nobody asks for it any more
}

TEST_F(HooksTest, InterimCheckpointsHaveNone) {
  spec_.recovery.every = 1;
  spec_.recovery.attempts = 5;
  Begin();
  c_.Steps(kAb, "tiny-1", 1);
  for (uint32_t stage = 0; stage < 2; ++stage) {
    v1::WorkerMessage message = c_.About("tiny-1");
    *message.mutable_shard() = ShardOf(1, stage);
    message.mutable_shard()->set_interim(true);
    c_.Tick(c_.Said(kAb[stage], message));
  }
  EXPECT_EQ(c_.LastEvent("hook"), "");
}

TEST_F(HooksTest, AreRefusedUnlessAllowed) {
  Coordinator plain;
  plain.Tick(SubmitOf(spec_, "tiny-1"));
  const Status refused = plain.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("--allow-hooks"));
  EXPECT_FALSE(plain.views().RunOf("tiny-1").ok());
  // Admins alone among members.
  event::Submitted submitted = SubmitOf(spec_, "tiny-1");
  submitted.by = {.name = "eve", .may_all = false};
  c_.Tick(submitted);
  const Status denied = c_.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
  EXPECT_THAT(std::string(Message(denied)), HasSubstr("eve is no admin"));
  submitted.by.may_all = true;
  c_.Tick(submitted);
  EXPECT_TRUE(c_.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
}

TEST_F(HooksTest, ARunThatHadThemTrainsOnWithoutThem) {
  Begin();
  const std::vector<RunRecord> stored = c_.Stored();
  Coordinator plain(stored);
  plain.Join(HelloAt("a", "tiny-1", 0));
  plain.Join(HelloAt("b", "tiny-1", 1));
  plain.Steps(kAb, "tiny-1", 2);
  plain.Shards(kAb, "tiny-1", 2);
  EXPECT_THAT(plain.LastEvent("hook"), HasSubstr("was started without --allow-hooks"));
  EXPECT_EQ(plain.StateOf("tiny-1"), "running");
}

}  // namespace
}  // namespace longhaul::coordinator
