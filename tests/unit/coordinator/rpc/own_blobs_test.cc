// A member gets nothing by the hash of somebody else's data, over real connections with TLS.
#include "coordinator/rpc/own_blobs.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/hash.h"
#include "coordinator/rpc/server.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "proto/member/access.h"
#include "run/data/data_set.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"

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
  }
  std::string State() const { return folder_.path() + "/state"; }

  using Stub = v1::ControlService::Stub;
  // As a user. After his first call, which says who he is.
  std::unique_ptr<Stub> Join(const std::string& name) const {
    const auto access = Access::Open({.addresses = {server_->address()},
                                      .token_file = State() + "/token",
                                      .credentials_file = folder_.path() + "/" + name + ".pem",
                                      .role = Role::kUser,
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
  v1::SubmitRequest RunOverTheText() const {
    v1::SubmitRequest request;
    request.set_run_yaml(ToYaml(SmallSpec("tiny", 2)));
    request.set_file_name("run.yaml");
    v1::DataFile& file = *request.add_data_files();
    file.set_name("corpus.txt");
    file.set_sha256(sha256_);
    file.set_bytes(text_.size());
    return request;
  }
  static grpc::Status Submit(Stub& stub, const v1::SubmitRequest& request) {
    grpc::ClientContext context;
    v1::SubmitReply reply;
    return stub.Submit(&context, request, &reply);
  }
  static grpc::StatusCode Fetch(Stub& stub, const std::string& sha256) {
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
  std::string text_, sha256_;
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
  request.set_run_yaml(ToYaml(spec));
  ASSERT_TRUE(Submit(*eve_, request).ok());
  EXPECT_EQ(Fetch(*eve_, sha256_), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(IsMissing(*eve_, sha256_));
}

}  // namespace
}  // namespace longhaul::coordinator
