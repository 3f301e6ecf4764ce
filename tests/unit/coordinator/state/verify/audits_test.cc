// Audits: who is drawn, what the spare gets, and what follows each answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using Kind = v1::WorkerCommand::BodyCase;

class AuditsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spec.recovery.attempts = 5;
    spec.recovery.spares = 1;
    spec.recovery.every = 2;
    spec.checkpoint.every = 0;
    spec.train.steps = 20;
    spec.audit.share = 1;
  }
  void Begin(const std::vector<std::string>& spares = {"d"}) {
    for (const std::string& worker : kAb) c.Join(worker);
    for (const std::string& worker : spares) c.Join(worker);
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Forget();
  }

  // What the stage's worker reports, and an honest audit, too.
  v1::StepReport Step(uint64_t step, uint32_t stage) const {
    v1::StepReport report = c.Report(step, stage, 2);
    report.set_numerics(7);
    report.set_squared_norm(static_cast<double>(step + stage));
    v1::DigestBody body;
    v1::EdgeDigests& edge = *body.add_edges();
    edge.set_forward(stage == 0);
    edge.set_sent(true);
    edge.set_messages(1);
    edge.add_digests(1000 + step);
    body.set_state_after(step);
    report.mutable_digests()->set_body(body.SerializeAsString());
    return report;
  }
  static v1::CheckpointFile RecordingOf(uint32_t stage) {
    v1::CheckpointFile recording;
    recording.set_name(fmt::format("stage-{}.inputs.bin", stage));
    recording.set_sha256(std::string(64, static_cast<char>('e' + stage)));
    recording.set_bytes(10);
    return recording;
  }
  // Both stages train steps 1 to `step` since the last state, and save it.
  void Train(
      uint64_t step,
      const std::function<void(v1::ShardReport&)>& change = [](v1::ShardReport&) {}) {
    for (uint64_t one = trained_ + 1; one <= step; ++one) {
      for (uint32_t stage = 0; stage < 2; ++stage) c.Step(kAb[stage], "tiny-1", Step(one, stage));
    }
    for (uint32_t stage = 0; stage < 2; ++stage) {
      v1::WorkerMessage message = c.About("tiny-1");
      v1::ShardReport& shard = *message.mutable_shard();
      shard = ShardOf(step, stage);
      shard.set_interim(true);
      *shard.mutable_recording() = RecordingOf(stage);
      shard.set_recorded_from(trained_);
      change(shard);
      c.Tick(c.Said(kAb[stage], message));
    }
    trained_ = step;
  }
  // Workers answer all requests to look at shards, until none is left.
  void Answer(const std::function<void(v1::ShardState&)>& judge = [](v1::ShardState&) {}) {
    for (size_t i = 0; i < c.commands.size(); ++i) {
      const auto* to = std::get_if<command::ToWorker>(&c.commands[i]);
      if (to == nullptr || !to->message.has_check_shards()) continue;
      const v1::WorkerCommand asked = to->message;
      if (!answered_.insert(asked.check_shards().check()).second) continue;
      for (const auto& [name, session] : c.sessions) {
        if (session == to->session) {
          c.Checked(std::string(name), asked, judge);
          break;
        }
      }
    }
  }
  // The newest audit that a spare has got.
  std::optional<v1::WorkerCommand> Asked(const std::string& spare) const {
    const v1::WorkerCommand* found = c.Last(spare, Kind::kAudit);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  void Reply(
      const std::string& spare,
      const std::function<void(v1::AuditReport&)>& change = [](v1::AuditReport&) {}) {
    const auto asked = Asked(spare);
    ASSERT_TRUE(asked) << "no audit came to " << spare;
    const v1::Audit& audit = asked->audit();
    v1::WorkerMessage message = c.About("tiny-1", asked->epoch());
    v1::AuditReport& report = *message.mutable_audited();
    report.set_audit(audit.audit());
    const uint32_t stage = audit.assign().cell().stage();
    for (uint64_t step = audit.assign().assignment().start_step() + 1; step <= audit.end_step();
         ++step) {
      *report.add_steps() = Step(step, stage);
    }
    *report.mutable_files() = ShardOf(audit.end_step(), stage).files();
    change(report);
    c.Tick(c.Said(spare, message));
  }
  static void Differ(v1::AuditReport& report) { report.mutable_steps(1)->set_squared_norm(99); }

  RunSpec spec = SmallSpec("tiny", 2);
  Coordinator c;
  uint64_t trained_ = 0;
  std::set<uint64_t> answered_;
};

TEST_F(AuditsTest, ASpareGetsTheRecordingAndTheStateBefore) {
  Begin();
  Train(2);
  Answer();
  const auto first = Asked("d");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->audit().end_step(), 2u);
  EXPECT_EQ(first->audit().recording().name(), "stage-0.inputs.bin");
  const v1::Assign& assign = first->audit().assign();
  EXPECT_EQ(assign.assignment().start_step(), 0u);
  EXPECT_EQ(assign.assignment().cells(0).worker_name(), "d");
  EXPECT_NE(StampOf(assign.assignment().hash()).value(), first->stamp())
      << "its links would be those of the run";
  EXPECT_EQ(assign.resume_files_size(), 0);
  Reply("d");
  Answer();
  EXPECT_EQ(Asked("d")->audit().recording().name(), "stage-1.inputs.bin");
  Reply("d");
  EXPECT_THAT(c.LastEvent("verify"), HasSubstr("audits that agreed bit for bit: 2"));

  Train(4);
  Answer();
  EXPECT_EQ(Asked("d")->audit().end_step(), 4u);
  EXPECT_EQ(Asked("d")->audit().assign().assignment().start_step(), 2u);
  ASSERT_EQ(Asked("d")->audit().assign().resume_files_size(), 1);
  EXPECT_EQ(Asked("d")->audit().assign().resume_files(0).name(), "stage-0.params.safetensors");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(AuditsTest, WithoutASecondSpareTheAccusedIsEvictedAndTheRunGoesBack) {
  Begin();
  Train(2);
  Answer();
  Reply("d");
  Answer();
  Reply("d");
  Train(4);
  Answer();
  Train(6);
  Reply("d", Differ);
  std::string all;
  for (const v1::Event& event : c.events) all += event.text() + "\n";
  EXPECT_THAT(all, HasSubstr("an audit has failed: steps 3 to 4 of worker a (stage 0), computed "
                             "again by worker d, gave something else at step 4: its part of the "
                             "squared gradient norm was 4 and should be 99"));
  ASSERT_FALSE(c.records["tiny-1"].checkpoints.empty());
  EXPECT_EQ(c.records["tiny-1"].checkpoints.back().step(), 2u) << all;
  // The spare takes its place.
  Answer();
  c.Pass(absl::Seconds(1), {"a", "b", "d"});
  Answer();
  ASSERT_NE(c.Last("d", Kind::kAssign), nullptr) << all;
  EXPECT_EQ(c.Last("d", Kind::kAssign)->assign().cell().stage(), 0u);
  EXPECT_EQ(c.Last("d", Kind::kAssign)->assign().assignment().start_step(), 2u);
}

TEST_F(AuditsTest, ASpareThatIsAloneWithItsResultIsEvicted) {
  spec.recovery.spares = 2;
  Begin({"d", "e"});
  Train(2);
  Answer();
  const std::string liar = Asked("d") ? "d" : "e", other = liar == "d" ? "e" : "d";
  Reply(liar, Differ);
  Answer();
  Reply(other);  // the audit of the other stage, which it had at the same time
  Answer();
  Reply(other);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  std::string all;
  for (const v1::Event& event : c.events) all += event.text() + "\n";
  EXPECT_THAT(all, HasSubstr(fmt::format("the audit of worker {} is false", liar)));
  Train(4);
  Answer();
  EXPECT_EQ(c.Count(other, Kind::kAudit), 3);
  EXPECT_EQ(c.Count(liar, Kind::kAudit), 1) << "a liar is asked again";
}

TEST_F(AuditsTest, TwoSparesAgainstAWorkerEvictIt) {
  spec.recovery.spares = 2;
  Begin({"d", "e"});
  Train(2);
  Answer();
  Reply("d", Differ);
  EXPECT_EQ(c.StateOf("tiny-1"), "running")
      << "nobody is judged on one word while there is another";
  Answer();
  Reply("e");  // the audit of the other stage
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  Answer();
  Reply("e", Differ);
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
}

TEST_F(AuditsTest, OtherDevicesAreNotCompared) {
  Begin();
  Train(2);
  Answer();
  Reply("d", [](v1::AuditReport& report) {
    Differ(report);
    report.mutable_steps(0)->set_numerics(8);
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("verify"), HasSubstr("nothing promises the same bits"));
}

TEST_F(AuditsTest, ARecordingThatIsNoneConvictsItsWorker) {
  Begin();
  Train(2);
  Answer();
  Reply("d", [](v1::AuditReport& report) {
    report.Clear();
    report.set_recording_faulty(true);
    report.set_problem("expected 2 tensors");
    report.set_audit(1);
  });
  // The number of an audit is not known to the test: an answer about none is ignored.
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  const uint64_t number = Asked("d")->audit().audit();
  Reply("d", [number](v1::AuditReport& report) {
    report.Clear();
    report.set_audit(number);
    report.set_recording_faulty(true);
    report.set_problem("expected 2 tensors");
  });
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
}

TEST_F(AuditsTest, WhoWithholdsRecordingsThreeTimesIsEvicted) {
  Begin();
  for (const uint64_t step : {2, 4, 6}) {
    EXPECT_EQ(c.StateOf("tiny-1"), "running");
    Train(step, [](v1::ShardReport& shard) {
      if (shard.recording().name().starts_with("stage-1")) shard.clear_recording();
    });
    Answer();
    if (c.StateOf("tiny-1") == "running" && Asked("d")) Reply("d");
  }
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
  std::string all;
  for (const v1::Event& event : c.events) all += event.text() + "\n";
  EXPECT_THAT(all, HasSubstr("for the 3rd time in a row"));
}

TEST_F(AuditsTest, AFileThatDoesNotComeGoesByWayOfTheCoordinatorNext) {
  Begin();
  Train(2);
  const auto fail = [](v1::ShardState& shard) {
    if (!shard.name().ends_with("inputs.bin")) return;
    shard.set_copied(false);
    shard.set_copy_error("no way");
  };
  const int before = c.Count("a", Kind::kCheckShards);
  Answer(fail);
  EXPECT_GT(c.Count("a", Kind::kCheckShards), before);
  EXPECT_FALSE(c.Last("a", Kind::kCheckShards)->check_shards().has_to());
  EXPECT_FALSE(Asked("d"));
  Answer(fail);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  std::string all;
  for (const v1::Event& event : c.events) all += event.text() + "\n";
  EXPECT_THAT(all, HasSubstr("steps 1 to 2 of worker a (stage 0) cannot be audited"));
}

TEST_F(AuditsTest, ASilentSpareIsGivenUp) {
  Begin();
  Train(2);
  Answer();
  ASSERT_TRUE(Asked("d"));
  for (const uint64_t step : {4, 6, 8, 10, 12, 14}) {
    c.Pass(absl::Minutes(1), {"a", "b", "d"});
    Train(step);
  }
  std::string all;
  for (const v1::Event& event : c.events) all += event.text() + "\n";
  EXPECT_THAT(all, HasSubstr("has no answer of worker d"));
}

TEST_F(AuditsTest, NothingIsDrawnWithoutAShare) {
  spec.audit.share = 0;
  Begin();
  Train(2);
  Answer();
  EXPECT_FALSE(Asked("d"));
}

TEST_F(AuditsTest, TheDrawTakesTheShare) {
  spec.audit.share = 0.3;
  spec.train.steps = 2000;
  Begin();
  int drawn = 0;
  for (uint64_t step = 2; step <= 400; step += 2) {
    Train(step);
    Answer();
    for (std::optional<v1::WorkerCommand> asked; (asked = Asked("d"));) {
      c.Forget();
      c.commands.emplace_back(command::ToWorker{c.sessions["d"], *asked});
      ++drawn;
      Reply("d");
      c.commands.erase(c.commands.begin());
      Answer();
    }
    c.Forget();
  }
  // 200 windows of two stages: 120 are expected, give or take 9.2.
  EXPECT_NEAR(drawn, 120, 40);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

// As `longhaul plan` says: a stage that lies in every window is found within so many windows.
TEST_F(AuditsTest, ALiarIsDrawnAsSoonAsThePlanSays) {
  spec.audit.share = 0.1;
  spec.train.steps = 2000;
  constexpr int kTrials = 40;
  constexpr uint64_t kWindows = 29;  // 0.9^29 is 0.047
  int named = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Coordinator fresh;
    std::swap(c.state, fresh.state);
    c.sessions.clear(), c.records.clear(), c.commands.clear(), c.events.clear();
    trained_ = 0;
    answered_.clear();
    for (const std::string worker : {"a", "b", "d"}) c.Join(worker);
    event::Submitted submitted = SubmitOf(spec, "tiny-1");
    submitted.link_secret = fmt::format("secret {}", trial);
    c.Tick(submitted);
    c.ToRunning(kAb, "tiny-1");
    bool drawn = false;
    for (uint64_t window = 1; window <= kWindows && !drawn; ++window) {
      Train(2 * window);
      Answer();
      while (const auto asked = Asked("d")) {
        drawn |= asked->audit().assign().cell().stage() == 1;
        Reply("d");
        std::erase_if(c.commands, [](const longhaul::coordinator::Command& command) {
          const auto* to = std::get_if<command::ToWorker>(&command);
          return to != nullptr && to->message.has_audit();
        });
        Answer();
      }
      c.Forget();
    }
    named += drawn ? 1 : 0;
  }
  // 38.1 are expected, with a deviation of 1.3.
  EXPECT_GE(named, 34);
}

}  // namespace
}  // namespace longhaul::coordinator
