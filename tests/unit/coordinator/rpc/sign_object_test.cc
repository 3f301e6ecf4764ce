// Signed addresses for workers, over real connections without TLS. Whose run it has to be is tried
// by training_signed_refusals_test.
#include "coordinator/rpc/sign_object.h"

#include <gmock/gmock.h>

#include <string>
#include <thread>

#include "base/hash.h"
#include "run/data/data_set.h"
#include "tests/support/silent_listener.h"
#include "tests/unit/coordinator/rpc/fake_worker.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SignObjectTest : public RpcTest {
 protected:
  // A run of sets at these addresses, which a worker begins to measure.
  void Begin(const std::vector<std::string>& folders) {
    Start();
    data::Mixture mixture;
    for (const std::string& folder : folders) {
      data::DataSet set{.vocabulary = 30'000, .bytes_per_token = 2, .chunk_bytes = 1 << 20};
      set.training.shards.push_back(
          {.tokens = 10'000,
           .ids = {.file = "a.bin", .bytes = 20'000, .chunks = Sha256Hex("its chunk")}});
      set.validation = set.training;
      mixture.sources.push_back({.folder = folder, .weight = 1, .set = set});
    }
    const std::string list = data::ToJson(mixture);
    ASSERT_TRUE(Upload(Sha256Hex(list), list.size(), list).ok());
    RunSpec spec = SmallSpec("tiny", 1);
    spec.data.text.clear();
    for (const std::string& folder : folders) {
      spec.data.sets.push_back({.from = folder, .weight = 1});
    }
    spec.data.list_sha256 = Sha256Hex(list);
    spec.data.vocabulary = 30'000;
    v1::SubmitRequest request;
    request.set_run_yaml(ToYaml(spec));
    request.set_file_name("run.yaml");
    CallContext context;
    v1::SubmitReply reply;
    const grpc::Status status = control_->Submit(&context.grpc, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    run_ = reply.run_id();
    session_.emplace(server_->address());
    session_->SayHello(HelloOf("a"));
    v1::WorkerCommand command;
    while (session_->Hear(&command) && !command.has_measure()) continue;
  }
  grpc::Status Sign(const std::string& address, bool writes = false) {
    CallContext context;
    v1::SignObjectRequest request;
    request.set_run_id(run_);
    request.set_address(address);
    if (writes) {
      request.mutable_write();
    } else {
      request.mutable_read();
    }
    reply_.Clear();
    return workers_->SignObject(&context.grpc, request, &reply_);
  }

  std::string run_;
  std::optional<Session> session_;
  v1::SignObjectReply reply_;
};

TEST_F(SignObjectTest, WithTheCoordinatorsKeysForAWhile) {
  options_.objects.credentials.s3 = {.access_key = "AKEY",
                                     .secret_key = remote::Secret("a secret key")};
  options_.objects.endpoints.s3 = "https://s3.example.org";
  options_.signing.validity = absl::Seconds(90);
  Begin({"s3://bucket/set", "gs://bucket/set"});
  ASSERT_TRUE(Sign("s3://bucket/set/a.bin").ok());
  EXPECT_THAT(reply_.url(), AllOf(StartsWith("https://s3.example.org/bucket/set/a.bin?"),
                                  HasSubstr("X-Amz-Expires=90"), HasSubstr("X-Amz-Signature=")));
  EXPECT_GT(reply_.valid_seconds(), 0u);
  EXPECT_LE(reply_.valid_seconds(), 90u);
  EXPECT_FALSE(reply_.has_version());
  // No keys, no address: the worker asks as everybody may.
  ASSERT_TRUE(Sign("gs://bucket/set/a.bin").ok());
  EXPECT_EQ(reply_.url(), "");
}

TEST_F(SignObjectTest, ForWhatTheRunNamesAlone) {
  options_.objects.credentials.s3 = {.access_key = "AKEY",
                                     .secret_key = remote::Secret("a secret key")};
  Begin({"s3://bucket/set"});
  for (const char* address :
       {"s3://bucket/set/dataset.json", "s3://bucket/set/", "s3://bucket/set/a.bin/b",
        "s3://other/set/a.bin", "gs://bucket/set/a.bin", "https://bucket/set/a.bin"}) {
    EXPECT_EQ(Sign(address).error_code(), grpc::StatusCode::PERMISSION_DENIED) << address;
  }
  EXPECT_EQ(Sign("s3://bucket/set/a.bin", /*writes=*/true).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Sign("/etc/passwd").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Sign("s3://bucket/set/a.bin").ok());
  run_ = "another";
  EXPECT_EQ(Sign("s3://bucket/set/a.bin").error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(SignObjectTest, AHubThatIsSilentKeepsFewCallsWaiting) {
  const testing::SilentListener hub;
  options_.objects.credentials.hub_token = remote::Secret("hf_token");
  options_.objects.endpoints.hub = "http://" + hub.address();
  options_.signing.calls = 2;
  Begin({"hf://datasets/org/set"});
  std::atomic<int> refused = 0;
  std::vector<std::thread> calls;
  for (int i = 0; i < 3; ++i) {
    calls.emplace_back([this, &refused] {
      CallContext context;
      v1::SignObjectRequest request;
      request.set_run_id(run_);
      request.set_address("hf://datasets/org/set/a.bin");
      request.mutable_read();
      v1::SignObjectReply reply;
      const grpc::Status status = workers_->SignObject(&context.grpc, request, &reply);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      if (status.error_message().find("at most 2 calls") == std::string::npos) return;
      ++refused;
      // The two others wait until the coordinator ends.
      server_->Stop(absl::Seconds(10));
    });
  }
  for (std::thread& call : calls) call.join();
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace longhaul::coordinator
