// `longhaul rm` and `longhaul gc`: what goes, and that nothing goes that somebody needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/ledger/manifests.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::CollectGarbageRequest Ask(bool dry_run = false) {
  v1::CollectGarbageRequest ask;
  ask.set_dry_run(dry_run);
  return ask;
}

v1::CheckpointManifest ManifestOf(const std::string& run, uint64_t step, bool damaged, bool copied,
                                  const std::string& worker = "a") {
  v1::CheckpointManifest manifest;
  manifest.set_run_id(run);
  manifest.set_step(step);
  manifest.add_cells()->set_worker_id("id-" + worker);
  v1::CheckpointFile& file = *manifest.add_files();
  file.set_name("stage-0.params.safetensors");
  file.set_bytes(10);
  file.set_sha256(fmt::format("{:0>60}{:0>4}", run, step));
  v1::ShardHolder& holder = *file.add_holders();
  holder.set_worker_id("id-" + worker);
  holder.set_worker_name(worker);
  if (damaged) holder.set_problem("it is cut short");
  if (copied) file.add_holders();
  return manifest;
}

RunRecord EndedRecord(const std::string& id, RunState state,
                      std::vector<v1::CheckpointManifest> checkpoints) {
  RunRecord record;
  record.id = RunId(id);
  record.spec = SmallSpec(id, 1);
  record.state = state;
  record.reason = "a test";
  record.checkpoints = std::move(checkpoints);
  record.submitted_unix_ms = 1;
  record.ended_unix_ms = 500'000;
  return record;
}

bool Has(const std::vector<v1::CheckpointManifest>& all, uint64_t step) {
  return std::ranges::count(all, step, &v1::CheckpointManifest::step) > 0;
}

// ---- gc ---------------------------------------------------------------------------

// Seeded: which checkpoints are damaged or copied, which of two workers holds them and is there,
// and how the run ended.
TEST(Garbage, EveryEndedRunResumesFromWhereItWouldHave) {
  std::mt19937 random(1);
  int trimmed = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<v1::CheckpointManifest> before;
    std::set<uint64_t> within_reach, safe;
    const bool both = random() % 2 == 0;  // else b is gone
    const uint64_t steps = random() % 6;
    for (uint64_t step = 1; step <= steps; ++step) {
      const bool damaged = random() % 2 == 0, copied = random() % 3 == 0, at_b = random() % 2 == 0;
      before.push_back(ManifestOf("r", step, damaged, copied, at_b ? "b" : "a"));
      if (copied) safe.insert(step);
      if (copied || (!damaged && (both || !at_b))) within_reach.insert(step);
    }
    constexpr RunState kEnds[] = {RunState::kDone, RunState::kStopped, RunState::kFailed};
    Coordinator c({EndedRecord("r", kEnds[random() % 3], before)});
    c.Join("a");
    if (both) c.Join("b");
    c.Tick(event::GarbageAsked{RequestId(5), Ask()});
    const RunRecord& after = c.records.at("r");
    // One that is held once may yet turn out to be damaged; one out of reach may never come back.
    const uint64_t first_kept =
        safe.empty() || within_reach.empty() ? 0 : std::min(*safe.rbegin(), *within_reach.rbegin());
    for (const v1::CheckpointManifest& manifest : before) {
      EXPECT_EQ(Has(after.checkpoints, manifest.step()), manifest.step() >= first_kept)
          << manifest.step();
    }
    const int dropped = static_cast<int>(before.size() - after.checkpoints.size());
    EXPECT_EQ(c.LastReply<command::CollectGarbage>()->reply.checkpoints_size(), dropped);
    trimmed += dropped;
  }
  EXPECT_GT(trimmed, 50);
}

TEST(Garbage, ARunThatGoesOnIsLeftAlone) {
  Coordinator c;
  for (const std::string& worker : kAb) c.Join(worker);
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 20;
  c.Tick(SubmitOf(spec, "tiny-1"));
  c.ToRunning(kAb, "tiny-1");
  for (uint64_t step = 1; step <= 4; ++step) {
    c.Steps(kAb, "tiny-1", step);
    if (step % 2 == 0) c.Shards(kAb, "tiny-1", step);
  }
  ASSERT_EQ(c.records.at("tiny-1").checkpoints.size(), 2u);
  c.Forget();
  c.Tick(event::GarbageAsked{RequestId(5), Ask()});
  EXPECT_EQ(c.records.at("tiny-1").checkpoints.size(), 2u);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kDropCheckpoint), 0);
  const auto* collect = c.LastReply<command::CollectGarbage>();
  ASSERT_NE(collect, nullptr);
  EXPECT_TRUE(collect->trimmed.empty());
  EXPECT_THAT(collect->named, Contains(std::string(64, 'c'))) << "its text";
  EXPECT_THAT(collect->named, Contains(std::string(64, 'd'))) << "its tokens";
}

TEST(Garbage, NamesListsAndCopiesOfAllRuns) {
  RunRecord record = EndedRecord("r", RunState::kDone, {ManifestOf("r", 1, false, true)});
  record.spec.weights.sha256 = std::string(64, 'e');
  RunRecord alike = record;  // is no reason to read the list twice
  alike.id = RunId("s");
  Coordinator c({record, alike});
  c.Tick(event::GarbageAsked{RequestId(5), Ask()});
  const auto* collect = c.LastReply<command::CollectGarbage>();
  EXPECT_THAT(collect->lists, ElementsAre(std::string(64, 'e')));
  EXPECT_THAT(collect->named, Contains(std::string(64, 'e')));
  EXPECT_THAT(collect->copies, ElementsAre(record.checkpoints[0].files(0).sha256()));
}

TEST(Garbage, DryRunSaysItAndDoesNothing) {
  Coordinator c({EndedRecord("r", RunState::kStopped,
                             {ManifestOf("r", 1, false, false), ManifestOf("r", 2, false, true)})});
  c.Join("a");
  c.Forget();
  c.Tick(event::GarbageAsked{RequestId(5), Ask(/*dry_run=*/true)});
  EXPECT_EQ(c.LastReply<command::CollectGarbage>()->reply.checkpoints_size(), 1);
  EXPECT_TRUE(c.LastReply<command::CollectGarbage>()->dry_run);
  EXPECT_TRUE(c.last.writes.empty());
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kDropCheckpoint), 0);
}

TEST(Garbage, RunsThatHaveEndedLatelyKeepAll) {
  Coordinator c({EndedRecord("r", RunState::kStopped,
                             {ManifestOf("r", 1, false, false), ManifestOf("r", 2, false, true)})});
  v1::CollectGarbageRequest ask;
  ask.set_ended_seconds(600);  // it has ended 500 s ago
  c.Tick(event::GarbageAsked{RequestId(5), ask});
  EXPECT_EQ(c.records.at("r").checkpoints.size(), 2u);
  c.Advance(absl::Seconds(200));
  c.Tick(event::GarbageAsked{RequestId(6), ask});
  EXPECT_EQ(c.records.at("r").checkpoints.size(), 1u);
}

// What a run that cannot be read needs, nobody knows.
TEST(Garbage, ARunThatCannotBeReadKeepsAllBlobsUntilItIsRemoved) {
  StoredRuns stored;
  stored.unreadable.push_back({RunId("x"), "its row is damaged"});
  const MonoTime now = MonoTime() + absl::Hours(1);
  State state({}, std::move(stored), 1, now);
  state.Tick({}, now, 1000);
  const auto why = [&] {
    const TickResult result = state.Tick({event::GarbageAsked{RequestId(5), Ask()}}, now, 1000);
    return std::get<command::CollectGarbage>(result.commands.at(0)).reply.blobs_kept_because();
  };
  EXPECT_THAT(why(), HasSubstr("cannot be read (x)"));
  EXPECT_THAT(why(), HasSubstr("longhaul rm x"));
  const TickResult removed = state.Tick({event::RemoveAsked{RequestId(6), "x"}}, now, 1000);
  const auto& reply = std::get<command::Reply<v1::RemoveRunReply>>(removed.commands.at(0)).reply;
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->run_id(), "x");
  EXPECT_TRUE(std::ranges::any_of(removed.writes, [](const Write& write) {
    const auto* run = std::get_if<write::RemoveRun>(&write);
    return run != nullptr && run->run == RunId("x");
  }));
  EXPECT_EQ(why(), "");
}

// ---- rm ---------------------------------------------------------------------------

TEST(Removal, OfARunThatHasEndedLeavesNothing) {
  Coordinator c({EndedRecord("r", RunState::kDone, {ManifestOf("r", 4, false, true)}),
                 EndedRecord("other", RunState::kDone, {})});
  c.Join("a");
  c.Forget();
  c.Tick(event::RemoveAsked{RequestId(5), "r"});
  const auto* reply = c.LastReply<command::Reply<v1::RemoveRunReply>>();
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  EXPECT_TRUE(reply->reply->away().empty());
  EXPECT_FALSE(c.views().RunOf("r").ok());
  EXPECT_TRUE(c.views().RunOf("other").ok());
  const auto removed = [](const Write& write) {
    const auto* run = std::get_if<write::RemoveRun>(&write);
    return run != nullptr && run->run == RunId("r");
  };
  EXPECT_TRUE(std::ranges::any_of(c.last.writes, removed));
  ASSERT_NE(c.Last("a", v1::WorkerCommand::kDropCheckpoint), nullptr);
  EXPECT_TRUE(c.Last("a", v1::WorkerCommand::kDropCheckpoint)->drop_checkpoint().removed());
  EXPECT_EQ(c.LastReply<command::DropCopies>()->sha256.size(), 1u);
}

TEST(Removal, NamesWorkersThatAreAway) {
  Coordinator c({EndedRecord("r", RunState::kDone, {ManifestOf("r", 4, false, false)})});
  c.Tick(event::RemoveAsked{RequestId(5), "r"});
  EXPECT_THAT(c.LastReply<command::Reply<v1::RemoveRunReply>>()->reply->away(), ElementsAre("a"));
}

// Two runs that are alike to the bit.
TEST(Removal, LeavesACopyThatAnotherRunHasToo) {
  v1::CheckpointManifest same = ManifestOf("r", 4, false, true);
  Coordinator c(
      {EndedRecord("r", RunState::kDone, {same}), EndedRecord("s", RunState::kDone, {same})});
  c.Tick(event::RemoveAsked{RequestId(5), "r"});
  EXPECT_EQ(c.LastReply<command::DropCopies>(), nullptr);
  c.Tick(event::RemoveAsked{RequestId(6), "s"});
  EXPECT_NE(c.LastReply<command::DropCopies>(), nullptr);
}

TEST(Removal, OfWhatGoesOnIsRefused) {
  Coordinator c;
  for (const std::string& worker : kAb) c.Join(worker);
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"), event::RemoveAsked{RequestId(4), "tiny-1"});
  EXPECT_FALSE(c.LastReply<command::Reply<v1::RemoveRunReply>>()->reply.ok());
  c.ToRunning(kAb, "tiny-1");
  c.Tick(event::RemoveAsked{RequestId(5), "tiny"});
  EXPECT_THAT(
      std::string(c.LastReply<command::Reply<v1::RemoveRunReply>>()->reply.status().message()),
      HasSubstr("longhaul stop tiny-1"));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Tick(event::RemoveAsked{RequestId(6), "nobody"});
  EXPECT_EQ(c.LastReply<command::Reply<v1::RemoveRunReply>>()->reply.status().code(),
            absl::StatusCode::kNotFound);
}

// Late words about a run that is gone are dropped like those about one that never was.
TEST(Removal, StragglersAreDropped) {
  Coordinator c;
  for (const std::string& worker : kAb) c.Join(worker);
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  c.ToRunning(kAb, "tiny-1");
  const v1::WorkerMessage about = c.About("tiny-1");
  c.Tick(event::StopAsked{RequestId(5), "tiny-1", true});
  c.Tick(event::RemoveAsked{RequestId(6), "tiny-1"});
  ASSERT_TRUE(c.LastReply<command::Reply<v1::RemoveRunReply>>()->reply.ok());
  v1::WorkerMessage step = about, shard = about, log = about, error = about;
  *step.mutable_step() = c.Report(1, 0, 2);
  *shard.mutable_shard() = ShardOf(2, 0);
  log.mutable_log()->set_text("late");
  error.mutable_error()->set_message("late");
  c.Tick(c.Said("a", step), c.Said("a", shard), c.Said("b", log), c.Said("b", error));
  EXPECT_FALSE(c.views().RunOf("tiny-1").ok());
  // The workers are free for another one.
  c.Tick(SubmitOf(SmallSpec("next", 2), "next-1", 7));
  c.ToRunning(kAb, "next-1");
  EXPECT_EQ(c.StateOf("next-1"), "running");
}

}  // namespace
}  // namespace longhaul::coordinator
