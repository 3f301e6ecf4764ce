// `longhaul checkpoints`.
#include <nlohmann/json.hpp>

#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointsCommandTest : public CliTest {
 protected:
  // Adds a checkpoint of two stages with a file each, the newest first.
  v1::CheckpointStatus& Add(uint64_t step, const std::string& state) {
    v1::CheckpointStatus& one = *control_.checkpoints.add_checkpoints();
    one.set_step(step);
    one.set_committed_unix_ms(1'700'000'000'000);
    one.set_bytes(3'000'000);
    one.set_state(state);
    for (const int stage : {0, 1}) {
      one.add_layers(stage + 1);
      v1::ShardStatus& shard = *one.add_shards();
      shard.set_name("stage-" + std::to_string(stage) + ".params.safetensors");
      v1::ShardHolderStatus& holder = *shard.add_holders();
      holder.set_worker_id("id-" + std::to_string(stage));
      holder.set_worker_name("worker" + std::to_string(stage + 1));
      holder.set_connected(stage == 0);
    }
    return one;
  }
};

TEST_F(CheckpointsCommandTest, NoneYet) {
  EXPECT_EQ(Ask({"checkpoints", "tiny"}, true).out, "No checkpoint of tiny was committed yet.\n");
  EXPECT_EQ(Ask({"checkpoints", "tiny"}).out, "");
  EXPECT_EQ(Ask({"checkpoints", "tiny", "--verify"}).code, 0);
}

TEST_F(CheckpointsCommandTest, SaysWhereTheyAreAndHowTheyAre) {
  v1::CheckpointStatus& newest = Add(200, "unreachable");
  newest.set_detail("worker worker2, which holds stage-1.params.safetensors, is not connected");
  newest.mutable_shards(0)->set_copied(true);
  v1::CheckpointStatus& older = Add(100, "committed");
  for (v1::ShardStatus& shard : *older.mutable_shards()) shard.set_copied(true);
  const Outcome people = Ask({"checkpoints", "tiny"}, true);
  EXPECT_EQ(people.code, 0);
  EXPECT_THAT(people.out, HasSubstr("1+2"));
  EXPECT_THAT(people.out, HasSubstr("worker1, worker2 (not connected); copies of 1 of 2 files at "
                                    "the coordinator"));
  EXPECT_THAT(people.out, HasSubstr("worker2 (not connected); copy at the coordinator"));
  EXPECT_THAT(people.out, HasSubstr("worker worker2, which holds stage-1"));
  const Outcome machine = Ask({"checkpoints", "tiny", "--json"});
  const auto json = nlohmann::json::parse(machine.out);
  EXPECT_EQ(json["run_id"], "tiny");
  EXPECT_EQ(json["checkpoints"][0]["step"], 200);
  EXPECT_EQ(json["checkpoints"][1]["state"], "committed");
}

TEST_F(CheckpointsCommandTest, VerifyFailsUnlessAllAreWhole) {
  Add(200, "whole");
  EXPECT_EQ(Ask({"checkpoints", "tiny", "--verify"}).code, 0);
  Add(100, "damaged").set_detail("worker worker1: stage-0: \033[2Jits contents changed");
  const Outcome outcome = Ask({"checkpoints", "tiny", "--verify"}, true);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("its contents changed"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\033[2J")));
  EXPECT_EQ(Ask({"checkpoints", "tiny"}).code, 0);
}

}  // namespace
}  // namespace longhaul::cli
