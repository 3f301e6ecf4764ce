// Stores of older versions open.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/file.h"
#include "coordinator/store/store.h"
#include "longhaul/v1/store1.pb.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;

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

}  // namespace
}  // namespace longhaul::coordinator
