// Stores of older versions open.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/store.h"
#include "longhaul/v1/store1.pb.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// As version 1 wrote it: a stage's addresses were texts where its endpoints are now.
template <class Old, class New>
std::string InVersion1(const New& message) {
  New without = message;
  for (v1::StagePlan& stage : *without.mutable_stages()) stage.clear_endpoints();
  Old old;
  EXPECT_TRUE(old.ParseFromString(without.SerializeAsString()));
  for (int i = 0; i < message.stages_size(); ++i) {
    for (const v1::DataEndpoint& endpoint : message.stages(i).endpoints()) {
      for (const std::string& address : endpoint.addresses()) {
        old.mutable_stages(i)->add_data_addresses(address);
      }
    }
  }
  return old.SerializeAsString();
}

TEST(UpgradeTest, AStoreOfVersion1Opens) {
  TempDir folder;
  RunRecord record = FullRecord("r");
  const auto add_endpoint = [](v1::StagePlan* stage) {
    v1::DataEndpoint& endpoint = *stage->add_endpoints();
    endpoint.set_transport("ucx");
    endpoint.add_addresses("10.77.0.2:41234");
    endpoint.add_addresses("192.0.2.7:1");
  };
  add_endpoint(record.plan->mutable_stages(0));
  record.checkpoints.resize(1);
  add_endpoint(record.checkpoints[0].add_stages());
  {
    const auto store = OpenStore(folder.path());
    ASSERT_TRUE(store->Apply({write::Run{record}, write::Run{FullRecord("other")}}).ok());
  }
  const std::string plan = InVersion1<v1::Store1Plan>(*record.plan);
  const std::string manifest = InVersion1<v1::Store1CheckpointManifest>(record.checkpoints[0]);
  ASSERT_LT(manifest.size(), 128u);  // its length is one byte
  const auto hex = [](std::string_view bytes) {
    std::string digits;
    for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    return digits;
  };
  Sql(folder.path(),
      fmt::format("UPDATE runs SET plan = x'{}', checkpoints = x'{:02x}{}' WHERE id = 'r'; PRAGMA "
                  "user_version=1",
                  hex(plan), manifest.size(), hex(manifest)));
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto runs = store->LoadRuns();
    ASSERT_TRUE(runs.ok()) << runs.status();
    ASSERT_EQ(runs->size(), 2u);
    ExpectEqual((*runs)[0], record);
  }
}

// What a coordinator of that version wrote, byte for byte: one run that was stopped, with its plan
// and two checkpoints, and one that waits.
std::string Version1() {
  const auto bytes = ReadFile(std::string(GOLDEN_DIR) + "/version1.db");
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

void ExpectEndpoints(const v1::StagePlan& stage, const std::vector<std::string>& addresses) {
  ASSERT_EQ(stage.endpoints_size(), 1);
  EXPECT_EQ(stage.endpoints(0).transport(), "ucx");
  EXPECT_THAT(stage.endpoints(0).addresses(), ElementsAreArray(addresses));
}

TEST(UpgradeTest, TheBytesThatVersion1WroteOpen) {
  const TempDir folder;
  ASSERT_TRUE(WriteFileAtomic(folder.path() + "/store.db", Version1()).ok());
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto runs = store->LoadRuns();
    ASSERT_TRUE(runs.ok()) << runs.status();
    ASSERT_EQ(runs->size(), 2u);
    const RunRecord& stopped = (*runs)[0];
    EXPECT_EQ(stopped.id.value(), "tiny-wan-aaaaaa");
    EXPECT_EQ(stopped.state, RunState::kStopped);
    EXPECT_EQ(stopped.reason, "stopped by request after step 100");
    EXPECT_EQ(stopped.epoch, Epoch(3));
    EXPECT_EQ(stopped.step, 117u);
    EXPECT_EQ(stopped.spec.model.hidden, 256u);
    EXPECT_EQ(stopped.spec.links.codecs.forward, "tah:p=0.7");
    EXPECT_EQ(stopped.link_secret, std::string("\0\x01\xff", 3) + std::string(29, 'x'));
    ASSERT_TRUE(stopped.plan.has_value());
    ASSERT_EQ(stopped.plan->stages_size(), 2);
    EXPECT_EQ(stopped.plan->stages(1).worker_name(), "worker2");
    EXPECT_EQ(stopped.plan->stages(1).first_layer(), 4u);
    ASSERT_EQ(stopped.checkpoints.size(), 2u);
    EXPECT_EQ(stopped.checkpoints[1].step(), 100u);
    EXPECT_EQ(stopped.checkpoints[1].files(0).sha256(), std::string(64, 'e'));
    for (const auto* stages : {&stopped.plan->stages(), &stopped.checkpoints[0].stages(),
                               &stopped.checkpoints[1].stages()}) {
      ExpectEndpoints(stages->Get(0), {"10.77.0.2:41234", "192.0.2.7:1"});
      ExpectEndpoints(stages->Get(1), {"10.77.0.3:41234"});
    }
    const RunRecord& queued = (*runs)[1];
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

// Of whatever version comes after this one.
TEST(UpgradeTest, ANewerStoreIsLeftByteForByte) {
  const TempDir folder;
  std::string newer = Version1();
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
