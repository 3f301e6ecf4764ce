// A member gets nothing by the hash of somebody else's data, over real connections with TLS.
#include "coordinator/rpc/own_blobs.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "base/hash.h"
#include "coordinator/rpc/server.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "proto/member/access.h"
#include "run/data/data_set.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/rpc/fake_worker.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

const MonoTime kBegin = MonoTime() + absl::Hours(1000);

TEST(RecentUploadsTest, AreRememberedForADayByMember) {
  RecentUploads recent;
  recent.Add("bob", "x", kBegin);
  EXPECT_TRUE(recent.Has("bob", "x", kBegin));
  EXPECT_FALSE(recent.Has("eve", "x", kBegin));
  EXPECT_FALSE(recent.Has("bob", "y", kBegin));
  EXPECT_TRUE(recent.Has("bob", "x", kBegin + absl::Hours(23)));
  EXPECT_FALSE(recent.Has("bob", "x", kBegin + absl::Hours(24)));
  // Sent again, it is young again when the first time is forgotten.
  recent.Add("bob", "x", kBegin + absl::Hours(20));
  recent.Add("bob", "y", kBegin + absl::Hours(30));
  EXPECT_TRUE(recent.Has("bob", "x", kBegin + absl::Hours(30)));
}

TEST(RecentUploadsTest, WhatIsCountedOnStaysAndWhatIsForgottenDoesNotComeBack) {
  RecentUploads recent;
  recent.Add("bob", "x", kBegin);
  recent.Add("bob", "y", kBegin);
  recent.Refresh("bob", "x", kBegin + absl::Hours(20));
  recent.Refresh("eve", "x", kBegin + absl::Hours(20));
  EXPECT_TRUE(recent.Has("bob", "x", kBegin + absl::Hours(43)));
  EXPECT_FALSE(recent.Has("bob", "y", kBegin + absl::Hours(24)));
  EXPECT_FALSE(recent.Has("eve", "x", kBegin + absl::Hours(20)));
  recent.Refresh("bob", "y", kBegin + absl::Hours(24));
  EXPECT_FALSE(recent.Has("bob", "y", kBegin + absl::Hours(24)));
}

TEST(RecentUploadsTest, NobodyPushesOutWhatAnotherHasSent) {
  RecentUploads recent(2);
  recent.Add("bob", "x", kBegin);
  for (const char* sha256 : {"1", "2", "3"}) recent.Add("eve", sha256, kBegin);
  EXPECT_FALSE(recent.Has("eve", "1", kBegin));
  EXPECT_TRUE(recent.Has("bob", "x", kBegin));
  // Nor does what one sends again and again push out the rest.
  recent.Add("bob", "y", kBegin);
  for (int i = 0; i < 3; ++i) recent.Add("bob", "y", kBegin);
  for (int i = 0; i < 3; ++i) recent.Refresh("bob", "y", kBegin);
  EXPECT_TRUE(recent.Has("bob", "x", kBegin));
}

TEST(RecentUploadsTest, TheOldestAreForgottenWhereTheyAreMany) {
  RecentUploads recent(2);
  for (const char* sha256 : {"1", "2", "3"}) recent.Add("bob", sha256, kBegin);
  EXPECT_FALSE(recent.Has("bob", "1", kBegin));
  EXPECT_TRUE(recent.Has("bob", "2", kBegin));
  EXPECT_TRUE(recent.Has("bob", "3", kBegin));
}

class OwnBlobsTest : public ::testing::Test {
 protected:
  OwnBlobsTest() { Start(); }
  void Start() {
    server_.reset();
    server_ = CoordinatorServer::Start({.listen = "127.0.0.1:0", .state_dir = State()}).value();
    bob_ = Join("bob");
    eve_ = Join("eve");
    for (int i = 0; i < 20'000; ++i) text_ += static_cast<char>('a' + i * i % 26);
    text_.resize(20'000);
    sha256_ = Sha256Hex(text_);
    others_text_.assign(text_.rbegin(), text_.rend());
  }
  std::string State() const { return folder_.path() + "/state"; }

  using Stub = v1::ControlService::Stub;
  // After the first call, which says who it is.
  std::unique_ptr<Stub> Join(const std::string& name, Role role = Role::kUser) const {
    const auto access = Access::Open({.addresses = {server_->address()},
                                      .token_file = State() + "/token",
                                      .credentials_file = folder_.path() + "/" + name + ".pem",
                                      .role = role,
                                      .name = name},
                                     absl::Seconds(30));
    EXPECT_TRUE(access.ok()) << access.status();
    auto stub = v1::ControlService::NewStub((*access)->Dial().channel);
    grpc::ClientContext context;
    v1::InfoReply reply;
    EXPECT_TRUE(stub->Info(&context, {}, &reply).ok());
    return stub;
  }
  static bool IsMissing(Stub& stub, const std::string& sha256) {
    grpc::ClientContext context;
    v1::MissingBlobsRequest request;
    request.add_sha256(sha256);
    v1::MissingBlobsReply reply;
    EXPECT_TRUE(stub.MissingBlobs(&context, request, &reply).ok());
    return reply.sha256_size() == 1;
  }
  static grpc::Status Upload(Stub& stub, const std::string& sha256, const std::string& bytes) {
    grpc::ClientContext context;
    v1::UploadReply reply;
    const auto writer = stub.UploadBlob(&context, &reply);
    v1::UploadChunk chunk;
    chunk.set_sha256(sha256);
    chunk.set_total_bytes(bytes.size());
    chunk.set_data(bytes);
    writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  }
  v1::SubmitRequest RunOverTheText() const { return RunOver(SmallSpec("tiny", 2), text_); }
  static v1::SubmitRequest RunOver(const RunSpec& spec, const std::string& text) {
    v1::SubmitRequest request;
    request.set_run_yaml(ToYaml(spec));
    request.set_file_name("run.yaml");
    v1::DataFile& file = *request.add_data_files();
    file.set_name("corpus.txt");
    file.set_sha256(Sha256Hex(text));
    file.set_bytes(text.size());
    return request;
  }
  static grpc::Status Submit(Stub& stub, const v1::SubmitRequest& request) {
    grpc::ClientContext context;
    v1::SubmitReply reply;
    return stub.Submit(&context, request, &reply);
  }
  // A worker's certificate, as FakeWorker `name` needs it.
  std::shared_ptr<grpc::Channel> JoinAsWorker(const std::string& name) const {
    const auto access = Access::Open({.addresses = {server_->address()},
                                      .token_file = State() + "/token",
                                      .credentials_file = folder_.path() + "/" + name + ".pem",
                                      .role = Role::kWorker,
                                      .name = name,
                                      .worker_id = "id-" + name},
                                     absl::Seconds(30));
    EXPECT_TRUE(access.ok()) << access.status();
    return (*access)->Dial().channel;
  }
  // A run of one stage whose checkpoint is to be copied. Whether an event of it then says `news`.
  bool TrainUntil(Stub& stub, const std::string& name, const std::string& text,
                  const std::string& news) const {
    RunSpec spec = SmallSpec(name, 1);
    spec.checkpoint.keep_copy = true;
    EXPECT_TRUE(Upload(stub, Sha256Hex(text), text).ok());
    const grpc::Status status = Submit(stub, RunOver(spec, text));
    EXPECT_TRUE(status.ok()) << status.error_message();
    // The events of one run end with it, and the copy may come later.
    const auto admin = Join("ann", Role::kAdmin);
    CallContext context;
    v1::EventsRequest request;
    request.set_follow(true);
    const auto reader = admin->ListEvents(&context.grpc, request);
    bool said = false;
    for (v1::Event event; !said && reader->Read(&event);) {
      said = event.run_id().starts_with(name + "-") && absl::StrContains(event.text(), news);
    }
    context.grpc.TryCancel();
    reader->Finish();
    return said;
  }
  // A worker's, or a user's.
  template <class AnyStub>
  static grpc::StatusCode Fetch(AnyStub& stub, const std::string& sha256) {
    grpc::ClientContext context;
    v1::FetchBlobRequest request;
    request.set_sha256(sha256);
    const auto reader = stub.FetchBlob(&context, request);
    for (v1::BlobChunk chunk; reader->Read(&chunk);) continue;
    return reader->Finish().error_code();
  }
  size_t Files() const {
    using Iterator = std::filesystem::directory_iterator;
    return static_cast<size_t>(std::distance(Iterator(State() + "/blobs"), Iterator()));
  }

  const TempDir folder_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<Stub> bob_, eve_;
  std::string text_, sha256_, others_text_;
};

TEST_F(OwnBlobsTest, AHashAloneGivesNothing) {
  const grpc::Status of_nobody = Submit(*eve_, RunOverTheText());
  EXPECT_EQ(of_nobody.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  ASSERT_TRUE(Upload(*bob_, sha256_, text_).ok());
  EXPECT_FALSE(IsMissing(*bob_, sha256_));
  // To eve it is as if nobody had sent it.
  EXPECT_TRUE(IsMissing(*eve_, sha256_));
  const grpc::Status of_bob = Submit(*eve_, RunOverTheText());
  EXPECT_EQ(of_bob.error_code(), of_nobody.error_code());
  EXPECT_EQ(of_bob.error_message(), of_nobody.error_message());
  {
    grpc::ClientContext context;
    v1::PlanReply reply;
    EXPECT_EQ(eve_->PlanRun(&context, RunOverTheText(), &reply).error_message(),
              of_nobody.error_message());
  }
  // Neither do other bytes under its name, nor some of them.
  std::string other = text_;
  other.back() = '!';
  EXPECT_EQ(Upload(*eve_, sha256_, other).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_FALSE(Submit(*eve_, RunOverTheText()).ok());
  ASSERT_TRUE(Submit(*bob_, RunOverTheText()).ok());
  EXPECT_EQ(Fetch(*bob_, sha256_), grpc::StatusCode::OK);
  EXPECT_EQ(Fetch(*eve_, sha256_), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(OwnBlobsTest, WhoHasTheBytesSendsThemAndTheyAreKeptOnce) {
  ASSERT_TRUE(Upload(*bob_, sha256_, text_).ok());
  ASSERT_TRUE(Upload(*eve_, sha256_, text_).ok());
  EXPECT_EQ(Files(), 1u);
  EXPECT_FALSE(IsMissing(*eve_, sha256_));
  ASSERT_TRUE(Submit(*eve_, RunOverTheText()).ok());
  EXPECT_EQ(Fetch(*eve_, sha256_), grpc::StatusCode::OK);
  // A run of hers names it, so that it is hers after a restart, too; of bob nobody knows any more.
  Start();
  EXPECT_FALSE(IsMissing(*eve_, sha256_));
  EXPECT_TRUE(IsMissing(*bob_, sha256_));
}

// Her worker says that its shard has the hash of what bob has sent, and that a copy is there.
TEST_F(OwnBlobsTest, AShardOfTheSameHashGivesNothing) {
  ASSERT_TRUE(Upload(*bob_, sha256_, text_).ok());
  const auto channel = JoinAsWorker("a");
  const auto stub = v1::WorkerService::NewStub(channel);
  // Whether it has a cell nobody knows before its hello, as after a restart.
  EXPECT_EQ(Fetch(*stub, sha256_), grpc::StatusCode::UNAVAILABLE);
  const FakeWorker worker(channel, "a", {.sha256 = sha256_, .bytes = text_.size()});
  EXPECT_TRUE(TrainUntil(*eve_, "eves", others_text_, "it has not come"));
  EXPECT_EQ(Fetch(*eve_, sha256_), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Fetch(*stub, sha256_), grpc::StatusCode::PERMISSION_DENIED);
}

// The same with a shard of which bob's run has a copy here.
TEST_F(OwnBlobsTest, ACopyOfAnotherRunsShardGivesNothing) {
  const std::string shard = "what bob's model has learned", sha256 = Sha256Hex(shard);
  const auto send = [&](const std::shared_ptr<grpc::Channel>& channel, const std::string& bytes) {
    const auto stub = v1::WorkerService::NewStub(channel);
    CallContext context;
    v1::UploadReply reply;
    const auto writer = stub->StoreShard(&context.grpc, &reply);
    v1::UploadChunk chunk;
    chunk.set_sha256(sha256);
    chunk.set_total_bytes(shard.size());
    chunk.set_data(bytes);
    writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  };
  grpc::Status sent;
  {
    const auto channel = JoinAsWorker("a");
    const FakeWorker worker(channel, "a", {.sha256 = sha256, .bytes = shard.size(), .send = [&] {
                                             sent = send(channel, shard);
                                           }});
    EXPECT_TRUE(TrainUntil(*bob_, "bobs", text_, "the coordinator has a copy"));
  }
  EXPECT_TRUE(sent.ok()) << sent.error_message();
  EXPECT_EQ(Fetch(*bob_, sha256), grpc::StatusCode::OK);
  const auto channel = JoinAsWorker("b");
  const FakeWorker worker(channel, "b", {.sha256 = sha256, .bytes = shard.size(), .send = [&] {
                                           sent = send(channel, "w");
                                         }});
  EXPECT_TRUE(TrainUntil(*eve_, "eves", others_text_, "it has not come"));
  EXPECT_EQ(sent.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << sent.error_message();
  EXPECT_EQ(Fetch(*eve_, sha256), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Fetch(*bob_, sha256), grpc::StatusCode::OK);
}

// She may write what she likes into a list of data sets, which is her own blob.
TEST_F(OwnBlobsTest, AListOfHashesGivesNothing) {
  ASSERT_TRUE(Upload(*bob_, sha256_, text_).ok());
  const uint64_t tokens = text_.size() / 2;
  data::DataSet set{.vocabulary = 30'000, .bytes_per_token = 2, .chunk_bytes = 1 << 20};
  set.training.shards.push_back(
      {.tokens = tokens, .ids = {.file = "a", .bytes = text_.size(), .chunks = sha256_}});
  set.validation = set.training;
  const std::string list = data::ToJson({.sources = {{.folder = "/data", .set = set}}});
  ASSERT_TRUE(data::MixtureFromJson(list).ok()) << data::MixtureFromJson(list).status();
  const std::string list_sha256 = Sha256Hex(list);
  ASSERT_TRUE(Upload(*eve_, list_sha256, list).ok());
  RunSpec spec = SmallSpec("tiny", 2);
  spec.data.text.clear();
  spec.data.sets = {{.from = "/data", .weight = 1}};
  spec.data.list_sha256 = list_sha256;
  spec.data.vocabulary = 30'000;
  v1::SubmitRequest request;
  request.set_run_yaml(ToYaml(spec));
  request.set_file_name("run.yaml");
  const grpc::Status refused = Submit(*eve_, request);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("has no blob " + sha256_));
  // With a list that claims to be of folders only, her run begins, and the list still gives
  // nothing.
  spec.data.upload = false;
  // Nor does a list lead workers to another folder than the run file names.
  spec.data.sets = {{.from = "/elsewhere", .weight = 1}};
  request.set_run_yaml(ToYaml(spec));
  const grpc::Status elsewhere = Submit(*eve_, request);
  EXPECT_EQ(elsewhere.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(elsewhere.error_message(), HasSubstr("the data set in /elsewhere"));
  spec.data.sets = {{.from = "/data", .weight = 1}};
  request.set_run_yaml(ToYaml(spec));
  ASSERT_TRUE(Submit(*eve_, request).ok());
  EXPECT_EQ(Fetch(*eve_, sha256_), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(IsMissing(*eve_, sha256_));
}

}  // namespace
}  // namespace longhaul::coordinator
