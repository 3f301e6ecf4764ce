// Stores of older versions open.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/store.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a coordinator of that version wrote, byte for byte.
std::string Golden(const std::string& name) {
  const auto bytes = ReadFile(std::string(GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

void Put(const std::string& name, const TempDir& folder) {
  ASSERT_TRUE(WriteFileAtomic(folder.path() + "/store.db", Golden(name)).ok());
}

// One run that was stopped, with its plan and two checkpoints, and one that waits.
TEST(UpgradeTest, TheBytesThatVersion1WroteOpen) {
  const TempDir folder;
  Put("version1.db", folder);
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto stored = store->LoadRuns();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_TRUE(stored->unreadable.empty());
    ASSERT_EQ(stored->runs.size(), 2u);
    const RunRecord& stopped = stored->runs[0];
    EXPECT_EQ(stopped.id.value(), "tiny-wan-aaaaaa");
    EXPECT_EQ(stopped.state, RunState::kStopped);
    EXPECT_EQ(stopped.reason, "stopped by request after step 100");
    EXPECT_EQ(stopped.epoch, Epoch(3));
    EXPECT_EQ(stopped.step, 117u);
    EXPECT_EQ(stopped.spec.model.hidden, 256u);
    EXPECT_EQ(stopped.spec.links.codecs.forward, "tah:p=0.7");
    EXPECT_EQ(stopped.link_secret, std::string("\0\x01\xff", 3) + std::string(29, 'x'));
    ASSERT_TRUE(stopped.plan.has_value());
    const Assignment& assignment = stopped.plan->assignment;
    ASSERT_EQ(assignment.cells.size(), 2u);
    EXPECT_EQ(assignment.cells[1].id, (CellId{.replica = 0, .stage = 1}));
    EXPECT_EQ(assignment.cells[1].worker_name, "worker2");
    EXPECT_EQ(assignment.cells[1].layers.first, 4u);
    ASSERT_EQ(assignment.edges.size(), 1u);
    EXPECT_EQ(assignment.edges[0].from, assignment.cells[0].id);
    EXPECT_EQ(assignment.edges[0].to, assignment.cells[1].id);
    // Its one transport's addresses were texts.
    EXPECT_THAT(assignment.cells[0].endpoints,
                ElementsAre(Endpoint{"ucx", {"10.77.0.2:41234", "192.0.2.7:1"}}));
    EXPECT_THAT(assignment.cells[1].endpoints, ElementsAre(Endpoint{"ucx", {"10.77.0.3:41234"}}));
    ASSERT_EQ(stopped.checkpoints.size(), 2u);
    EXPECT_EQ(stopped.checkpoints[1].step(), 100u);
    EXPECT_EQ(stopped.checkpoints[1].files(0).sha256(), std::string(64, 'e'));
    EXPECT_EQ(stopped.checkpoints[1].cells(1).worker_name(), "worker2");
    EXPECT_EQ(stopped.checkpoints[1].cells(1).first_layer(), 4u);
    const RunRecord& queued = stored->runs[1];
    EXPECT_EQ(queued.state, RunState::kQueued);
    EXPECT_FALSE(queued.plan.has_value());
    ASSERT_EQ(queued.data_files.size(), 1u);
    EXPECT_EQ(queued.data_files[0].bytes(), 1ull << 40);

    EXPECT_EQ(*store->NextEventSequence(), 2u);
    EXPECT_EQ(store->Events("", 0, 10)->at(0).text(), "stopped");
    EXPECT_EQ(store->Steps(stopped.id, 0, 10)->at(0).loss(), 5.5);
    EXPECT_EQ(store->Logs(stopped.id, 0, 10)->at(0).line().text(), "hello");
  }
}

// One run that trains, one that was stopped, each of two stages with a checkpoint of step 2, and
// one that waits. Its plans are those of that version's planner.
TEST(UpgradeTest, TheBytesThatVersion2WroteOpen) {
  const TempDir folder;
  Put("version2.db", folder);
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto stored = store->LoadRuns();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_TRUE(stored->unreadable.empty());
    ASSERT_EQ(stored->runs.size(), 3u);
    const RunRecord& running = stored->runs[0];
    EXPECT_EQ(running.id, RunId("tiny-aaaaaa"));
    EXPECT_EQ(running.state, RunState::kRunning);
    EXPECT_EQ(running.step, 3u);
    EXPECT_EQ(running.data->tokens, 100'000u);
    ASSERT_TRUE(running.plan.has_value());
    const Plan& plan = *running.plan;
    EXPECT_TRUE(CheckAssignment(plan.assignment).ok()) << CheckAssignment(plan.assignment);
    EXPECT_EQ(plan.assignment.run, running.id);
    EXPECT_EQ(plan.assignment.epoch, Epoch(1));
    EXPECT_EQ(plan.assignment.data, *running.data);
    EXPECT_THAT(plan.assignment.run_yaml, HasSubstr("name: \"tiny\""));
    ASSERT_EQ(plan.assignment.cells.size(), 2u);
    const Cell& below = plan.assignment.cells[1];
    EXPECT_EQ(below.worker, WorkerId("id-b"));
    EXPECT_EQ(below.incarnation, Incarnation("b-1"));
    EXPECT_EQ(below.layers, (LayerRange{.first = 2, .count = 2}));
    EXPECT_EQ(below.roles, (Roles{.embedding = false, .head = true}));
    EXPECT_EQ(below.setting, (Setting{.depth = 1, .activation_lead = 1, .threads = 1}));
    EXPECT_EQ(below.devices, std::vector<uint32_t>{0});
    EXPECT_THAT(below.endpoints, ElementsAre(Endpoint{"ucx", {"b:1"}}, Endpoint{"grpc", {"b:1"}}));
    ASSERT_EQ(plan.assignment.edges.size(), 1u);
    const Edge& edge = plan.assignment.edges[0];
    EXPECT_EQ(edge.transport, "ucx");
    EXPECT_TRUE(edge.to_dials);
    EXPECT_THAT(edge.forward.codec, HasSubstr("tah:p=0.7"));
    EXPECT_GT(edge.forward.bytes, 0u);
    EXPECT_EQ(edge.backward.bits_per_second, 100e6);
    ASSERT_EQ(plan.cells.size(), 2u);
    EXPECT_EQ(plan.cells[1].memory_available_bytes, uint64_t{8} << 30);
    EXPECT_EQ(plan.cells[0].egress_bits_per_second, 100e6);
    EXPECT_GT(plan.prediction.step_seconds, 0);
    ASSERT_EQ(plan.prediction.cells.size(), 2u);
    ASSERT_EQ(plan.prediction.edges.size(), 1u);
    EXPECT_THAT(plan.explanation, HasSubstr("2 stages: a has 2 layers, b has 2 layers"));
    ASSERT_EQ(running.checkpoints.size(), 1u);
    EXPECT_EQ(running.checkpoints[0].format(), 3u);
    EXPECT_EQ(running.checkpoints[0].step(), 2u);
    EXPECT_EQ(running.checkpoints[0].files(1).holders(0).worker_id(), "id-b");
    EXPECT_EQ(running.checkpoints[0].cells(1).worker_name(), "b");
    EXPECT_EQ(stored->runs[1].state, RunState::kStopped);
    EXPECT_EQ(stored->runs[2].state, RunState::kQueued);
    EXPECT_EQ(store->Steps(running.id, 0, 10)->size(), 3u);
    EXPECT_EQ(store->Logs(running.id, 0, 10)->at(0).line().text(), "hello");
  }
}

// The runs of version2.db, brought to version 3. Of the one that was stopped the coordinator has
// copies, and the file of its second stage was missing.
TEST(UpgradeTest, TheBytesThatVersion3WroteOpen) {
  const TempDir folder;
  Put("version3.db", folder);
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto stored = store->LoadRuns();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_TRUE(stored->unreadable.empty());
    ASSERT_EQ(stored->runs.size(), 3u);
    const RunRecord& running = stored->runs[0];
    EXPECT_EQ(running.state, RunState::kRunning);
    ASSERT_TRUE(running.plan.has_value());
    EXPECT_TRUE(CheckAssignment(running.plan->assignment).ok());
    EXPECT_FALSE(running.stop_asked);
    EXPECT_EQ(running.attempts, Attempts());
    const RunRecord& stopped = stored->runs[1];
    ASSERT_EQ(stopped.checkpoints.size(), 1u);
    const v1::CheckpointManifest& manifest = stopped.checkpoints[0];
    EXPECT_EQ(manifest.step(), 2u);
    EXPECT_EQ(manifest.cells_size(), 2);
    ASSERT_EQ(manifest.files_size(), 2);
    for (const v1::CheckpointFile& file : manifest.files()) {
      EXPECT_EQ(file.bytes(), 10u);
      ASSERT_EQ(file.holders_size(), 2);
      EXPECT_EQ(file.holders(0).worker_id(), file.stage() == 0 ? "id-c" : "id-d");
      EXPECT_EQ(file.holders(0).worker_name(), file.stage() == 0 ? "c" : "d");
      EXPECT_EQ(file.holders(0).problem(), file.stage() == 0 ? "" : "it is missing");
      EXPECT_EQ(file.holders(1).worker_id(), "");  // the coordinator
    }
  }
}

// As a coordinator of version 4 left version3.db.
TEST(UpgradeTest, TheBytesThatVersion4WroteOpen) {
  const TempDir folder;
  Put("version4.db", folder);
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto stored = store->LoadRuns();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_TRUE(stored->unreadable.empty());
    ASSERT_EQ(stored->runs.size(), 3u);
    const RunRecord& running = stored->runs[0];
    EXPECT_EQ(running.state, RunState::kRunning);
    EXPECT_FALSE(running.resize_asked);
    EXPECT_EQ(running.ReplicasWanted(), 1u);
    EXPECT_EQ(running.plan->assignment.microbatches_before, std::nullopt);
    ASSERT_EQ(stored->runs[1].checkpoints.size(), 1u);
    EXPECT_FALSE(stored->runs[1].checkpoints[0].has_microbatches());
    EXPECT_EQ(stored->runs[1].checkpoints[0].files(1).holders_size(), 2);
  }
}

// Its workers speak another protocol by then; the same ones made anew go on, and nobody asks them
// to.
TEST(UpgradeTest, AnUnfinishedRunOfAnOlderStoreGoesOn) {
  const TempDir folder;
  Put("version2.db", folder);
  Coordinator c(OpenStore(folder.path())->LoadRuns()->runs);
  for (int second = 0; second <= 60; ++second) {
    c.Tick();
    c.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(c.StateOf("tiny-aaaaaa"), "recovering");
  for (const char* worker : {"a", "b"}) c.Join(HelloOf(worker, "2"));
  EXPECT_EQ(c.StateOf("tiny-aaaaaa"), "preparing");
  for (const std::string& worker : kAb) c.Ready(worker, "tiny-aaaaaa", 2);
  EXPECT_EQ(c.StateOf("tiny-aaaaaa"), "running") << c.ReasonOf("tiny-aaaaaa");
  const v1::Assign assign = c.Last("b", v1::WorkerCommand::kAssign)->assign();
  ASSERT_EQ(assign.resume_files_size(), 1);
  EXPECT_EQ(assign.resume_files(0).holders(0).worker_id(), "id-b");
}

// Neither keeps another from it.
TEST(UpgradeTest, ARunThatCannotBeUpgradedStaysAsItIs) {
  const TempDir folder;
  Put("version2.db", folder);
  Sql(folder.path(), "UPDATE runs SET plan=x'ffff' WHERE id='tiny-aaaaaa'");
  const std::string before = RowOf(folder.path(), "tiny-aaaaaa");
  {
    const auto stored = OpenStore(folder.path())->LoadRuns();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->runs.size(), 2u);
    ASSERT_EQ(stored->unreadable.size(), 1u);
    EXPECT_EQ(stored->unreadable[0].id, RunId("tiny-aaaaaa"));
  }
  EXPECT_EQ(RowOf(folder.path(), "tiny-aaaaaa"), before);
}

// Of whatever version comes after this one.
TEST(UpgradeTest, ANewerStoreIsLeftByteForByte) {
  const TempDir folder;
  std::string newer = Golden("version2.db");
  ASSERT_GT(newer.size(), 64u);
  newer[63] = static_cast<char>(kStoreSchemaVersion + 1);  // of PRAGMA user_version's four bytes
  ASSERT_TRUE(WriteFileAtomic(folder.path() + "/store.db", newer).ok());
  const auto store = Store::Open(folder.path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition) << store.status();
  EXPECT_THAT(std::string(Message(store.status())),
              HasSubstr(fmt::format("has schema version {}", kStoreSchemaVersion + 1)));
  EXPECT_EQ(*ReadFile(folder.path() + "/store.db"), newer);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files.push_back(entry.path().filename());
  }
  EXPECT_THAT(files, ElementsAre("store.db"));
}

}  // namespace
}  // namespace longhaul::coordinator
