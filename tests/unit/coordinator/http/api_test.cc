// The JSON API.
#include "coordinator/http/api.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/unit/coordinator/http/fake_source.h"

namespace longhaul::coordinator {
namespace {

class ApiTest : public ::testing::Test {
 protected:
  static nlohmann::json Parse(const StatusOr<std::string>& text) {
    EXPECT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->find('\n'), std::string::npos);  // a frame of the stream has it on one line
    return nlohmann::json::parse(*text);
  }
  FakeSource source_;
  Api api_{&source_, "1.2.3"};
};

TEST_F(ApiTest, OverviewCountsWorkersAndListsRuns) {
  source_.workers_.resize(3);
  source_.workers_[1].set_connected(true);
  const nlohmann::json overview = Parse(api_.Overview());
  EXPECT_EQ(overview["version"], "1.2.3");
  EXPECT_EQ(overview["workers"]["connected"], 1);
  EXPECT_EQ(overview["workers"]["known"], 3);
  EXPECT_EQ(overview["runs"][0]["run_id"], "tiny-abcdef");
}

// A viewer more costs the state machine nothing.
TEST_F(ApiTest, ManyViewersAskTheCoordinatorOnce) {
  for (int i = 0; i < 50; ++i) Parse(api_.Overview());
  EXPECT_LT(source_.asked_, 10u);
}

TEST_F(ApiTest, ARunByItsNameOrNotAtAll) {
  EXPECT_EQ(Parse(api_.Run("tiny"))["run"]["run_id"], "tiny-abcdef");
  EXPECT_TRUE(Parse(api_.Run("tiny"))["edges"].empty());
  EXPECT_TRUE(absl::IsNotFound(api_.Run("other").status()));
  EXPECT_TRUE(absl::IsNotFound(api_.Steps("other", {}).status()));
  EXPECT_TRUE(absl::IsNotFound(api_.Events("other", 0).status()));
}

TEST_F(ApiTest, WorkersSayWhatTheyAreAndWhomTheyDoNotReach) {
  v1::WorkerStatus& worker = source_.workers_.emplace_back();
  worker.set_name("w\"1\n\xff");  // of a stranger
  worker.set_connected(true);
  for (int i = 0; i < 2; ++i) {
    v1::Device& device = *worker.add_devices();
    device.set_kind("cuda");
    device.set_name("H100");
    device.set_memory_bytes(80);
  }
  worker.mutable_cell()->set_stage(3);
  v1::UnreachableWorker& cut = *worker.add_cannot_talk_to();
  cut.set_worker("w2");
  cut.set_problem("connection refused");
  source_.links_.emplace_back().set_goodput_bits_per_second(1e9);
  const nlohmann::json reply = Parse(api_.Workers());
  const nlohmann::json& row = reply["workers"][0];
  EXPECT_EQ(row["devices"], "2 x H100");
  EXPECT_EQ(row["memory_bytes"], 160);
  EXPECT_EQ(row["cell"]["stage"], 3);
  EXPECT_EQ(row["cannot_talk_to"][0]["problem"], "connection refused");
  EXPECT_EQ(reply["links"][0]["goodput_bits_per_second"], 1e9);
}

TEST_F(ApiTest, EventsComeAfterThoseThatAreKnown) {
  for (uint64_t i = 1; i <= 3; ++i) source_.events_.emplace_back().set_sequence(i);
  EXPECT_EQ(Parse(api_.Events("tiny", 1))["events"].size(), 2u);
  EXPECT_EQ(Parse(api_.Events("", 3))["events"].size(), 0u);
}

TEST_F(ApiTest, ARefusalIsRememberedAsLongAsAnAnswer) {
  Remembered remembered(absl::Hours(1));
  int made = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(remembered
                     .Get("key",
                          [&]() -> StatusOr<std::string> {
                            ++made;
                            return absl::UnavailableError("no");
                          })
                     .ok());
  }
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace longhaul::coordinator
