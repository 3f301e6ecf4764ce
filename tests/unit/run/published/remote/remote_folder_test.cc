// Published models on a hub and on a web server of our own (tests/support/hub_server.py).
#include "run/published/remote/remote_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "tests/unit/base/remote/hub_server.h"

namespace longhaul::published {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::string FixtureOf(const std::string& name) {
  return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + name;
}

class RemoteFolderTest : public ::testing::Test {
 protected:
  RemoteFolderTest() {
    settings_.endpoints.hub = server_.hub();
    options_.hosts = {.hosts = {"127.0.0.1:*"}, .local_hosts = {"127.0.0.1:*"}};
    options_.part_bytes = 10'000;
    options_.patience = {.attempts = 2, .first_pause = absl::ZeroDuration()};
  }

  std::string Publish(const std::string& repository, const std::string& folder) {
    return server_
        .Do("publish_folder",
            {{"repository", "models/" + repository}, {"revision", "main"}, {"folder", folder}})
        .get<std::string>();
  }
  // Returns the address of the folder on the web server.
  std::string Web(const std::string& folder, const Json& etag) {
    server_.Do("web_folder", {{"path", "/web/model/"}, {"folder", folder}, {"etag", etag}});
    return server_.cdn() + "/web/model";
  }
  StatusOr<Weights> Read(const std::string& address) {
    const remote::Store store(settings_, options_);
    LH_ASSIGN_OR_RETURN(const auto folder,
                        OpenRemoteFolder(store, remote::ParseAddress(address).value()));
    return ReadFolder(*folder);
  }
  Status ReadTensorsLike(const Weights& weights, const std::string& folder) {
    const remote::Store store(settings_, options_);
    LH_ASSIGN_OR_RETURN(RemoteTensors tensors, RemoteTensors::Open(store, weights));
    for (const Tensor& tensor : weights.tensors) {
      LH_ASSIGN_OR_RETURN(const auto bytes, tensors.Read(tensor));
      EXPECT_EQ(bytes, ReadTensor(folder, tensor).value()) << tensor.name;
    }
    return absl::OkStatus();
  }
  static std::string Text(const Status& status) { return std::string(Message(status)); }

  testing::HubServer server_;
  remote::Settings settings_;
  remote::Options options_;
};

TEST_F(RemoteFolderTest, AHubHasWhatTheFolderHas) {
  for (const std::string name : {"qwen2_5", "gpt2_sharded"}) {
    const std::string folder = FixtureOf(name);
    const std::string commit = Publish("org/" + name, folder);
    const std::string address = "hf://org/" + name;
    auto weights = Read(address);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->from, fmt::format("{}@{}/", address, commit));
    EXPECT_EQ(FromJson(ToJson(*weights)).value(), *weights);
    EXPECT_EQ(Read(fmt::format("{}@{}", address, commit)).value(), *weights);

    // The branch moves; the list stays with its commit.
    Publish("org/" + name, FixtureOf("llama2"));
    EXPECT_TRUE(ReadTensorsLike(*weights, folder).ok());
    for (const FileVersion& file : weights->versions) {
      EXPECT_EQ(file.bytes, fs::file_size(folder + "/" + file.name));
      EXPECT_NE(file.tag, "");
    }
    EXPECT_EQ(weights->versions.size(), name == "qwen2_5" ? 1u : 3u);
    weights->from.clear();
    weights->versions.clear();
    EXPECT_EQ(*weights, ReadFolder(folder).value());
  }
}

TEST_F(RemoteFolderTest, TensorsAreNotReadForTheList) {
  Publish("org/tiny", FixtureOf("qwen2_5"));
  ASSERT_TRUE(Read("hf://org/tiny").ok());
  uint64_t asked = 0;
  for (const Json& request : server_.Do("log")) {
    if (request["server"] != "cdn" || !request["range"].is_string()) continue;
    const std::string range = request["range"].get<std::string>();
    const size_t minus = range.find('-');
    asked += std::stoull(range.substr(minus + 1)) - std::stoull(range.substr(6)) + 1;
  }
  EXPECT_GT(asked, 0u);
  EXPECT_LT(asked, fs::file_size(FixtureOf("qwen2_5") + "/model.safetensors") / 4);
}

TEST_F(RemoteFolderTest, AWebServerHasWhatTheFolderHasUntilItChanges) {
  const std::string folder = FixtureOf("qwen2_5");
  const std::string address = Web(folder, "\"one\"");
  const auto weights = Read(address);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->from, address + "/");
  EXPECT_EQ(weights->files, ReadFolder(folder)->files);
  EXPECT_TRUE(ReadTensorsLike(*weights, folder).ok());

  Web(folder, "\"two\"");
  const Status changed = ReadTensorsLike(*weights, folder);
  EXPECT_EQ(changed.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Text(changed), AllOf(HasSubstr("has changed since the run was submitted"),
                                   HasSubstr("\"one\""), HasSubstr("\"two\"")));
}

TEST_F(RemoteFolderTest, AFileThatChangesWhileItIsReadIsNoticed) {
  const std::string folder = FixtureOf("qwen2_5");
  const auto weights = Read(Web(folder, "\"one\""));
  ASSERT_TRUE(weights.ok()) << weights.status();
  const remote::Store store(settings_, options_);
  auto tensors = RemoteTensors::Open(store, *weights);
  ASSERT_TRUE(tensors.ok());
  ASSERT_TRUE(tensors->Read(weights->tensors.front()).ok());
  Web(folder, "\"two\"");
  const auto bytes = tensors->Read(weights->tensors.back());
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Text(bytes.status()), HasSubstr("has changed since the run was submitted"));
}

TEST_F(RemoteFolderTest, NamesTheShardThatIsMissing) {
  const testing::TempDir copy;
  fs::copy(FixtureOf("gpt2_sharded"), copy.path(), fs::copy_options::recursive);
  std::string removed;
  for (const auto& file : fs::directory_iterator(copy.path())) {
    const std::string name = file.path().filename();
    if (name.starts_with("model-00002")) removed = name;
  }
  fs::remove(copy.path() + "/" + removed);
  Publish("org/cut", copy.path());
  const auto weights = Read("hf://org/cut");
  EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument) << weights.status();
  EXPECT_THAT(Text(weights.status()), HasSubstr(removed));
}

TEST_F(RemoteFolderTest, AnotherFormatIsNamed) {
  const testing::TempDir copy;
  fs::copy(FixtureOf("qwen2_5") + "/config.json", copy.path());
  Publish("org/old", copy.path());
  EXPECT_THAT(Text(Read("hf://org/old").status()),
              AllOf(HasSubstr("hf://org/old"), HasSubstr("pytorch_model.bin")));
}

TEST_F(RemoteFolderTest, APrivateModelNeedsTheToken) {
  Publish("private/model", FixtureOf("qwen2_5"));
  const auto hidden = Read("hf://private/model");
  EXPECT_EQ(hidden.status().code(), absl::StatusCode::kPermissionDenied) << hidden.status();
  EXPECT_THAT(Text(hidden.status()), AllOf(HasSubstr("hf://private/model"), HasSubstr("401")));
  settings_.credentials.hub_token = remote::Secret("hf_bad_token");
  const Status wrong = Read("hf://private/model").status();
  EXPECT_THAT(Text(wrong), AllOf(HasSubstr("401"), Not(HasSubstr("hf_bad_token"))));
  settings_.credentials.hub_token = remote::Secret("hf_good");
  const auto weights = Read("hf://private/model");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(ToJson(*weights), Not(HasSubstr("hf_good")));

  settings_.credentials = {};
  EXPECT_EQ(ReadTensorsLike(*weights, FixtureOf("qwen2_5")).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(RemoteFolderTest, WhatDoesNotExistIsNamed) {
  EXPECT_THAT(Text(Read("hf://org/nothing").status()),
              AllOf(HasSubstr("hf://org/nothing"), HasSubstr("404")));
  EXPECT_THAT(Text(Read(server_.cdn() + "/web/nothing/").status()),
              AllOf(HasSubstr("/web/nothing/config.json"), HasSubstr("404")));
}

TEST_F(RemoteFolderTest, AddressesWithSecretsAndFilesWithoutTagsAreRefused) {
  const auto is_signed = Read("https://127.0.0.1/model/?X-Amz-Signature=abc");
  EXPECT_EQ(is_signed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(is_signed.status()), AllOf(HasSubstr("without a query"), Not(HasSubstr("abc"))));
  const auto untagged = Read(Web(FixtureOf("qwen2_5"), nullptr));
  EXPECT_THAT(Text(untagged.status()), HasSubstr("neither an ETag nor a time"));
}

TEST_F(RemoteFolderTest, NoMemoryForWhatAForeignListPromises) {
  auto weights = Read(Web(FixtureOf("qwen2_5"), "\"one\""));
  ASSERT_TRUE(weights.ok()) << weights.status();
  weights->versions.front().bytes = uint64_t{1} << 60;
  weights->tensors.front().bytes = uint64_t{1} << 59;
  EXPECT_EQ(ReadTensorsLike(*weights, FixtureOf("qwen2_5")).code(), absl::StatusCode::kDataLoss);
}

TEST(RemoteList, EachTensorNeedsAHashOrAFileOfTheAddress) {
  Weights weights;
  weights.from = "hf://org/model@abc/";
  weights.versions = {{.name = "model.safetensors", .bytes = 100, .tag = "tag"}};
  weights.tensors = {{.name = "a",
                      .type = "F32",
                      .shape = {5},
                      .file = "model.safetensors",
                      .offset = 80,
                      .bytes = 20,
                      .sha256 = {}}};
  ASSERT_TRUE(FromJson(ToJson(weights)).ok());
  const auto refused = [&](auto change) {
    Weights wrong = weights;
    change(wrong);
    const auto read = FromJson(ToJson(wrong));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(Message(read.status()));
  };
  EXPECT_THAT(refused([](Weights& w) { w.from.clear(); }), HasSubstr("'a' has no hash"));
  EXPECT_THAT(refused([](Weights& w) { w.versions.clear(); }), HasSubstr("is not in a file"));
  EXPECT_THAT(refused([](Weights& w) { w.tensors[0].file = "other"; }), HasSubstr("not in a file"));
  EXPECT_THAT(refused([](Weights& w) { w.tensors[0].offset = 81; }), HasSubstr("not in a file"));
  EXPECT_THAT(refused([](Weights& w) { w.versions[0].tag.clear(); }), HasSubstr("no tag"));
  EXPECT_THAT(refused([](Weights& w) { w.tensors[0].name = "base_model.model.a"; }),
              HasSubstr("has no hash"));
  EXPECT_THAT(refused([](Weights& w) { w.tensors[0].sha256 = "12"; }), HasSubstr("hash"));
  refused([](Weights& w) { w.versions[0].name = "../secret"; });
}

}  // namespace
}  // namespace longhaul::published
