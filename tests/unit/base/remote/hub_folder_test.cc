// Folders that Store writes to a hub of our own (tests/support/hub_server.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/hash.h"
#include "base/remote/store.h"
#include "tests/unit/base/remote/hub_server.h"

namespace longhaul::remote {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class HubFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.endpoints.hub = server_.hub();
    settings_.credentials.hub_token = Secret("hf_good");
    options_.hosts = {.hosts = {"127.0.0.1:*"}, .local_hosts = {"127.0.0.1:*"}};
    options_.patience.sleep = [this](absl::Duration) { ++pauses_; };
    server_.Do("publish",
               {{"repository", "models/org/model"},
                {"revision", "main"},
                {"files", {{"README.md", {"r", 30}}, {"model.safetensors", {"o", 5000}}}}});
  }

  Store MakeStore() const { return Store(settings_, options_); }
  static Address At(const std::string& text) { return ParseAddress(text).value(); }
  static std::span<const std::byte> Bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  Json Repository(const std::string& name) {
    return server_.Do("repository", {{"name", "models/" + name}});
  }
  std::string PrepareError(const std::string& address) {
    status_ = MakeStore().PrepareWrites(At(address)).status();
    return std::string(Message(status_));
  }

  testing::HubServer server_;
  Settings settings_;
  Options options_;
  std::atomic<int> pauses_ = 0;
  Status status_;
  const std::string config_ = testing::Fill('c', 700), whole_ = testing::Fill('w', 9'000),
                    parts_ = testing::Fill('p', 50'001);
};

TEST_F(HubFolderTest, AllFilesAreOneCommit) {
  std::atomic<uint64_t> most = 0;
  const FolderChange change{.files = {{"a-of-2.safetensors", Bytes(whole_)},
                                      {"b-of-2.safetensors", Bytes(parts_)},
                                      {"empty", {}},
                                      {"config.json", Bytes(config_)}},
                            // What is also written stays.
                            .removed = {"model.safetensors", "config.json"},
                            .summary = "step 20 of \"run\"",
                            .progress = [&](uint64_t bytes) {
                              if (bytes > most) most = bytes;
                            }};
  const Json before = Repository("org/model");
  // A part that is asked for again, and a branch that moved meanwhile.
  server_.Fault("cdn", {{"method", "PUT"}, {"status", 503}});
  server_.Fault("hub", {{"with", "/commit/"}, {"status", 412}});
  server_.Fault("hub",
                {{"with", "/preupload/"}, {"status", 429}, {"headers", {{"Retry-After", "1"}}}});
  const Status status = MakeStore().WriteAll(At("hf://org/model/"), change);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(pauses_, 3);
  EXPECT_EQ(most, config_.size() + whole_.size() + parts_.size());
  const Json after = Repository("org/model");
  EXPECT_EQ(after["commits"], before["commits"].get<int>() + 1);
  EXPECT_EQ(after["files"]["main"], Json({{"README.md", Sha256Hex(testing::Fill('r', 30))},
                                          {"a-of-2.safetensors", Sha256Hex(whole_)},
                                          {"b-of-2.safetensors", Sha256Hex(parts_)},
                                          {"empty", Sha256Hex("")},
                                          {"config.json", Sha256Hex(config_)}}));
}

TEST_F(HubFolderTest, AFolderOfABranch) {
  const Address folder = At("hf://org/model@tuned/runs/one/");
  // The branch is made, and the repository stays what it was.
  EXPECT_FALSE(MakeStore().PrepareWrites(folder).value());
  const Status status =
      MakeStore().WriteAll(folder, {.files = {{"config.json", Bytes(config_)}}, .summary = "x"});
  ASSERT_TRUE(status.ok()) << status;
  const Json files = Repository("org/model")["files"];
  EXPECT_EQ(files["tuned"]["runs/one/config.json"], Sha256Hex(config_));
  EXPECT_EQ(files["main"].size(), 2);
}

TEST_F(HubFolderTest, ARepositoryThatIsMissingIsMadeAsAPrivateOne) {
  EXPECT_TRUE(MakeStore().PrepareWrites(At("hf://org/new")).value());
  EXPECT_EQ(Repository("org/new")["private"], true);
  EXPECT_FALSE(MakeStore().PrepareWrites(At("hf://org/new")).value());
  EXPECT_TRUE(MakeStore().PrepareWrites(At("hf://datasets/org/new")).value());
  EXPECT_THAT(PrepareError("hf://closed/new"),
              AllOf(HasSubstr("cannot make the repository"), HasSubstr("on the hub's page first"),
                    HasSubstr("a token that may write")));
  EXPECT_TRUE(absl::IsPermissionDenied(status_)) << status_;
}

TEST_F(HubFolderTest, WhoMayNotWriteHearsOfItBeforehand) {
  const Json before = Repository("org/model");
  EXPECT_THAT(PrepareError("hf://org/model@0123456789012345678901234567890123456789"),
              HasSubstr("expected a branch, got a commit"));
  EXPECT_TRUE(absl::IsInvalidArgument(status_)) << status_;
  EXPECT_THAT(PrepareError("https://127.0.0.1/x/"), HasSubstr("expected hf://, s3:// or gs://"));
  for (const char* token : {"hf_read", "hf_wrong"}) {
    settings_.credentials.hub_token = Secret(token);
    EXPECT_THAT(PrepareError("hf://org/model"),
                HasSubstr("set HF_TOKEN to a token that may write"));
    EXPECT_TRUE(absl::IsPermissionDenied(status_)) << status_;
    EXPECT_THAT(std::string(Message(status_)), Not(HasSubstr(token)));
  }
  settings_.credentials.hub_token = Secret();
  EXPECT_THAT(PrepareError("hf://org/model"), HasSubstr("set HF_TOKEN"));
  EXPECT_TRUE(absl::IsFailedPrecondition(status_)) << status_;
  EXPECT_EQ(Repository("org/model"), before);
}

}  // namespace
}  // namespace longhaul::remote
