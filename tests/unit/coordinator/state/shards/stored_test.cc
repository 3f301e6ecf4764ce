// Checkpoints are copied to an object store, and runs begin from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/manifests.h"
#include "run/stored/stored_checkpoint.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kTo = "s3://bucket/prefix";
const char* const kFolder = "s3://bucket/prefix/tiny-1/step-00000001/";

template <class T>
const T* LastOf(const Coordinator& c) {
  const T* found = nullptr;
  for (const Command& command : c.commands) {
    if (const T* one = std::get_if<T>(&command)) found = one;
  }
  return found;
}

class StoredCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    spec.checkpoint.every = 1;
    spec.checkpoint.to = kTo;
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
  }
  void Commit(uint64_t step) {
    c.Steps(kAb, "tiny-1", step);
    c.Shards(kAb, "tiny-1", step, static_cast<char>('a' + step % 6));
  }
  // Both workers have written, and so does the coordinator.
  void Store(uint64_t step) {
    for (const std::string& worker : kAb) c.Checked(worker);
    c.Tick(event::CheckpointStored{RunId("tiny-1"), 1, step, ""});
  }
  const v1::CheckpointManifest* Manifest(uint64_t step) const {
    return FindCheckpoint(c.records.at("tiny-1"), step);
  }
  std::string Events() const {
    std::string all;
    for (const v1::Event& event : c.events) {
      if (event.kind() == "checkpoint") all += event.text() + "\n";
    }
    return all;
  }
  RunSpec spec = SmallSpec("tiny", 2);
  Coordinator c;
};

TEST_F(StoredCheckpoints, WorkersWriteTheFilesAndTheCoordinatorTheDescription) {
  Commit(1);
  for (const std::string& worker : kAb) {
    const v1::WorkerCommand* asked = c.Last(worker, v1::WorkerCommand::kCheckShards);
    ASSERT_NE(asked, nullptr);
    EXPECT_TRUE(asked->check_shards().copy());
    EXPECT_EQ(asked->check_shards().to_folder().address(), kFolder);
    ASSERT_EQ(asked->check_shards().files_size(), 1);
    const std::string object = kFolder + asked->check_shards().files(0).name();
    const WorkerId me("id-" + worker);
    EXPECT_TRUE(c.views().MovesObject(RunId("tiny-1"), object, true, me));
    EXPECT_FALSE(c.views().MovesObject(RunId("tiny-1"), object, false, me));
    EXPECT_FALSE(c.views().MovesObject(RunId("tiny-1"), object, true, WorkerId("id-c")));
    EXPECT_FALSE(c.views().MovesObject(RunId("other"), object, true, me));
    EXPECT_FALSE(c.views().MovesObject(RunId("tiny-1"), object + "x", true, me));
  }
  c.Checked("a");
  EXPECT_EQ(LastOf<command::StoreCheckpoint>(c), nullptr);
  c.Checked("b");
  const auto* asked = LastOf<command::StoreCheckpoint>(c);
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(asked->folder.address(), kFolder);
  EXPECT_TRUE(stored::Check(asked->checkpoint).ok()) << stored::Check(asked->checkpoint);
  EXPECT_EQ(asked->checkpoint.manifest().files(0).holders_size(), 0);
  EXPECT_EQ(asked->checkpoint.manifest().cells(0).endpoints_size(), 0);
  EXPECT_EQ(asked->checkpoint.data_files(0).sha256(), std::string(64, 'c'));
  // Not before the description is there.
  EXPECT_FALSE(IsStored(*Manifest(1)));
  c.Tick(event::CheckpointStored{RunId("tiny-1"), 1, 1, ""});
  EXPECT_TRUE(IsStored(*Manifest(1)));
  EXPECT_THAT(Events(), HasSubstr(std::string("the checkpoint of step 1 is in ") + kFolder));
}

TEST_F(StoredCheckpoints, OldOnesGoWhenANewerOneIsThere) {
  spec.checkpoint.keep = 2;
  Commit(1);
  Store(1);
  Commit(2);
  Commit(3);
  // None of the steps since is in the folder: the one that is stays.
  EXPECT_NE(Manifest(1), nullptr);
  EXPECT_EQ(LastOf<command::TrimFolder>(c), nullptr);
  Store(2);
  const auto* trim = LastOf<command::TrimFolder>(c);
  ASSERT_NE(trim, nullptr);
  EXPECT_EQ(trim->address, "s3://bucket/prefix/tiny-1/");
  EXPECT_THAT(trim->dropped, ElementsAre(1u));
  EXPECT_THAT(trim->kept, ElementsAre(2u, 3u));
  Store(3);
  EXPECT_TRUE(IsStored(*Manifest(3)));
}

TEST_F(StoredCheckpoints, AFailureIsAnEventAndIsTriedAgain) {
  Commit(1);
  c.Checked("a");
  c.Checked("b", [](v1::ShardState& shard) {
    shard.set_copied(false);
    shard.set_copy_error("cannot sign: there are no keys");
  });
  EXPECT_THAT(Events(),
              AllOf(HasSubstr("worker b could not send stage-1.params.safetensors of the "
                              "checkpoint of step 1 to s3://bucket/prefix/tiny-1/step-"),
                    HasSubstr("cannot sign: there are no keys; the next attempt follows")));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(LastOf<command::StoreCheckpoint>(c), nullptr);
  c.Forget();
  c.Pass(absl::Seconds(29), kAb);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kCheckShards), 0);
  c.Pass(absl::Seconds(2), kAb);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kCheckShards), 1);
  for (const std::string& worker : kAb) c.Checked(worker);
  c.Tick(event::CheckpointStored{RunId("tiny-1"), 1, 1, "the bucket is not there"});
  EXPECT_FALSE(IsStored(*Manifest(1)));
  EXPECT_THAT(Events(), HasSubstr("the bucket is not there; the next attempt follows in 1m"));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(StoredCheckpoints, ARestartedCoordinatorBeginsTheCopyAnew) {
  Commit(1);
  c.Checked("a");
  c.Restart();
  c.Forget();
  c.Join(HelloAt("a", "tiny-1", 0));
  c.Join(HelloAt("b", "tiny-1", 1));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kCheckShards), 1);
  Store(1);
  EXPECT_TRUE(IsStored(*Manifest(1)));
}

// Two attempts may write one description: the second answer is no reason to delete anything.
TEST_F(StoredCheckpoints, AResumeWhileOneIsOnItsWayLosesNothing) {
  Commit(1);
  for (const std::string& worker : kAb) c.Checked(worker);
  c.Error("a", "tiny-1", "boom");
  c.Tick(SubmitOf(spec, "unused", 7, true));
  for (const std::string& worker : kAb) c.Checked(worker);  // for the resume
  for (const std::string& worker : kAb) {
    const v1::WorkerCommand* asked = c.Last(worker, v1::WorkerCommand::kCheckShards);
    if (asked->check_shards().has_to_folder()) c.Checked(worker);
  }
  c.Forget();
  for (int answer = 0; answer < 2; ++answer) {
    c.Tick(event::CheckpointStored{RunId("tiny-1"), 1, 1, ""});
  }
  EXPECT_EQ(LastOf<command::TrimFolder>(c), nullptr);
}

TEST_F(StoredCheckpoints, StayWhenTheRunIsRemoved) {
  Commit(1);
  Store(1);
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  c.Tick(event::RemoveAsked{RequestId(5), "tiny-1"});
  const auto* reply = c.LastReply<command::Reply<v1::RemoveRunReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  EXPECT_EQ(reply->reply->stored_in(), "s3://bucket/prefix/tiny-1/");
  EXPECT_EQ(LastOf<command::TrimFolder>(c), nullptr);
}

TEST_F(StoredCheckpoints, AWorkersIdIsNoAddress) {
  v1::Hello hello = HelloOf("c");
  hello.set_worker_id(kFolder);
  c.Join(hello);
  EXPECT_EQ(c.Last("c", v1::WorkerCommand::kWelcome), nullptr);
}

// Another coordinator, which knows nothing of the run.
class BegunElsewhere : public StoredCheckpoints {
 protected:
  void SetUp() override {
    StoredCheckpoints::SetUp();
    Commit(1);
    for (const std::string& worker : kAb) c.Checked(worker);
    checkpoint = LastOf<command::StoreCheckpoint>(c)->checkpoint;
    other.Join("x");
    other.Join("y");
  }
  Status Submit() {
    event::Submitted submitted = SubmitOf(spec, "tiny-2", 7);
    *submitted.submit.mutable_from_checkpoint() = checkpoint;
    submitted.submit.set_from_folder(kFolder);
    other.Tick(submitted);
    return other.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  }
  // The coordinator has looked at the folder.
  void Looked(const std::string& problem, bool unreadable = false) {
    const auto* asked = LastOf<command::CheckCopies>(other);
    ASSERT_NE(asked, nullptr);
    ASSERT_TRUE(asked->folder);
    event::CopiesChecked checked{asked->check, {}};
    checked.problems.assign(asked->files.size(), problem);
    checked.unreadable.assign(asked->files.size(), unreadable);
    other.Tick(checked);
  }
  void Taken(const std::string& worker, const std::string& problem = "") {
    const v1::WorkerCommand* asked = other.Last(worker, v1::WorkerCommand::kTakeShards);
    ASSERT_NE(asked, nullptr);
    v1::WorkerMessage message;
    message.set_run_id(asked->run_id());
    message.set_epoch(asked->epoch());
    message.mutable_shards_checked()->set_check(asked->take_shards().check());
    for (const v1::CheckpointFile& file : asked->take_shards().files()) {
      v1::ShardState& shard = *message.mutable_shards_checked()->add_shards();
      shard.set_name(file.name());
      shard.set_problem(problem);
      shard.set_copied(problem.empty());
    }
    other.Tick(other.Said(worker, message));
  }
  void Measure() {
    other.Data("tiny-2");
    for (const char* worker : {"x", "y"}) {
      other.Times(worker, "tiny-2", other.views().RunOf("tiny-2")->epoch());
    }
  }

  v1::StoredCheckpoint checkpoint;
  Coordinator other;
};

TEST_F(BegunElsewhere, WorkersFetchTheFilesAndGoOnFromTheStep) {
  ASSERT_TRUE(Submit().ok()) << Submit();
  Measure();
  Looked("");
  EXPECT_EQ(other.StateOf("tiny-2"), "planning");
  const v1::WorkerCommand* asked = other.Last("x", v1::WorkerCommand::kTakeShards);
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(asked->take_shards().from_folder().address(), kFolder);
  EXPECT_EQ(asked->take_shards().files(0).run_id(), "tiny-1");
  const std::string object = kFolder + asked->take_shards().files(0).name();
  EXPECT_TRUE(other.views().MovesObject(RunId("tiny-2"), object, false, WorkerId("id-x")));
  EXPECT_FALSE(other.views().MovesObject(RunId("tiny-2"), object, true, WorkerId("id-x")));
  Taken("x");
  Taken("y");
  EXPECT_EQ(other.StateOf("tiny-2"), "preparing");
  const v1::Assign& assign = other.Last("x", v1::WorkerCommand::kAssign)->assign();
  EXPECT_EQ(assign.assignment().start_step(), 1u);
  EXPECT_TRUE(IsHeldBy(assign.resume_files(0), "id-x"));
  EXPECT_EQ(assign.resume_files(0).run_id(), "tiny-1");
  // The folder that it began from is another run's.
  for (const char* worker : {"x", "y"}) other.Ready(worker, "tiny-2", 1);
  for (uint64_t step = 2; step <= 4; ++step) {
    other.Steps({"x", "y"}, "tiny-2", step);
    other.Shards({"x", "y"}, "tiny-2", step, 'd');
    for (const char* worker : {"x", "y"}) other.Checked(worker);
    other.Tick(event::CheckpointStored{RunId("tiny-2"), 1, step, ""});
  }
  EXPECT_EQ(FindCheckpoint(other.records.at("tiny-2"), 1), nullptr);
  for (const Command& command : other.commands) {
    if (const auto* trim = std::get_if<command::TrimFolder>(&command)) {
      EXPECT_EQ(trim->address, "s3://bucket/prefix/tiny-2/");
    }
  }
}

TEST_F(BegunElsewhere, AFolderOutOfReachIsNoDamage) {
  spec.recovery.attempts = 5;
  ASSERT_TRUE(Submit().ok());
  Measure();
  Looked("the server does not answer", /*unreadable=*/true);
  std::string states;
  for (const v1::Event& event : other.events) states += event.text() + "\n";
  EXPECT_THAT(states,
              HasSubstr("the coordinator cannot look at the copy in s3://bucket/prefix/tiny-1/"
                        "step-00000001/ of stage-1.params.safetensors of the checkpoint of "
                        "step 1: the server does not answer"));
  EXPECT_TRUE(IsStored(other.records.at("tiny-2").checkpoints.front()));
  EXPECT_EQ(other.StateOf("tiny-2"), "planning");  // again
  Measure();
  Looked("");
  Taken("x");
  Taken("y");
  EXPECT_EQ(other.StateOf("tiny-2"), "preparing");
}

TEST_F(BegunElsewhere, DamageInTheFolderIsNamed) {
  ASSERT_TRUE(Submit().ok());
  Measure();
  Looked("");
  Taken("x", "expected SHA-256 1, it has 2");
  Taken("y");
  EXPECT_EQ(other.StateOf("tiny-2"), "failed");
  EXPECT_THAT(
      other.ReasonOf("tiny-2"),
      AllOf(HasSubstr("s3://bucket/prefix/tiny-1/step-00000001/: stage-0.params.safetensors"),
            HasSubstr("expected SHA-256 1, it has 2")));
}

TEST_F(BegunElsewhere, OnlyWithTheSameRun) {
  spec.model.hidden = 128;
  EXPECT_THAT(std::string(Submit().message()),
              AllOf(HasSubstr("model.hidden is 64 in the run and 128 in this file"),
                    HasSubstr("without --from-checkpoint")));
  spec = SmallSpec("tiny", 2);
  checkpoint.mutable_manifest()->mutable_files(0)->set_name("../x.safetensors");
  EXPECT_EQ(Submit().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace longhaul::coordinator
