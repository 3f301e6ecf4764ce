// A member who has as much as it may is told so, and others go on: over real connections with TLS.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

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
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kTextBytes = 20'000;
constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;

std::string TextOf(int seed) {
  std::string text;
  for (size_t i = 0; i < kTextBytes; ++i) {
    text += static_cast<char>('a' + (i * i + static_cast<size_t>(seed) * i) % 26);
  }
  return text + std::to_string(seed);
}

class QuotasTest : public ::testing::Test {
 protected:
  using Stub = v1::ControlService::Stub;

  void Start(const MemberLimits& limits) {
    server_ = CoordinatorServer::Start(
                  {.listen = "127.0.0.1:0", .state_dir = State(), .state = {.limits = limits}})
                  .value();
    bob_ = Join("bob");
    eve_ = Join("eve");
    ann_ = Join("ann", Role::kAdmin);
  }
  std::string State() const { return folder_.path() + "/state"; }
  std::shared_ptr<Access> AccessOf(const std::string& name, Role role) const {
    auto access = Access::Open({.addresses = {server_->address()},
                                .token_file = State() + "/token",
                                .credentials_file = folder_.path() + "/" + name + ".pem",
                                .role = role,
                                .name = name},
                               absl::Seconds(30));
    EXPECT_TRUE(access.ok()) << access.status();
    return *std::move(access);
  }
  // After the first call, which says who it is.
  std::unique_ptr<Stub> Join(const std::string& name, Role role = Role::kUser) const {
    auto stub = v1::ControlService::NewStub(AccessOf(name, role)->Dial().channel);
    CallContext context;
    v1::InfoReply reply;
    EXPECT_TRUE(stub->Info(&context.grpc, {}, &reply).ok());
    return stub;
  }
  static grpc::Status Upload(Stub& stub, const std::string& bytes) {
    CallContext context;
    v1::UploadReply reply;
    const auto writer = stub.UploadBlob(&context.grpc, &reply);
    v1::UploadChunk chunk;
    chunk.set_sha256(Sha256Hex(bytes));
    chunk.set_total_bytes(bytes.size());
    chunk.set_data(bytes);
    writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  }
  static grpc::Status Submit(Stub& stub, const RunSpec& spec, const std::string& text,
                             std::string* id = nullptr) {
    v1::SubmitRequest request;
    request.set_run_yaml(ToYaml(spec));
    request.set_file_name("run.yaml");
    if (!text.empty()) {
      v1::DataFile& file = *request.add_data_files();
      file.set_name("corpus.txt");
      file.set_sha256(Sha256Hex(text));
      file.set_bytes(text.size());
    }
    CallContext context;
    v1::SubmitReply reply;
    grpc::Status status = stub.Submit(&context.grpc, request, &reply);
    if (id != nullptr) *id = reply.run_id();
    return status;
  }
  size_t TemporaryFiles() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(State() + "/blobs")) {
      count += entry.path().filename().string().starts_with("tmp-") ? 1 : 0;
    }
    return count;
  }

  const TempDir folder_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<Stub> bob_, eve_, ann_;
};

TEST_F(QuotasTest, BytesOfAMemberAreCountedUntilTheyAreDeleted) {
  Start({.blob_bytes = 3 * kTextBytes + 1000});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Upload(*bob_, TextOf(i)).ok()) << i;
  const grpc::Status refused = Upload(*bob_, TextOf(3));
  EXPECT_EQ(refused.error_code(), kExhausted);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("bob has sent 60 KB"), HasSubstr("may have 61 KB"),
                    HasSubstr("longhaul rm RUN"), HasSubstr("longhaul gc")));
  EXPECT_TRUE(Upload(*bob_, TextOf(0)).ok());  // again: it counts once
  EXPECT_TRUE(Upload(*eve_, TextOf(3)).ok());
  for (int i = 4; i < 9; ++i) EXPECT_TRUE(Upload(*ann_, TextOf(i)).ok()) << i;
  // A run names one of them; the others go.
  ASSERT_TRUE(Submit(*bob_, SmallSpec("tiny", 2), TextOf(0)).ok());
  v1::CollectGarbageRequest gc;
  gc.set_unnamed_seconds(0);
  CallContext context;
  v1::CollectGarbageReply reply;
  ASSERT_TRUE(ann_->CollectGarbage(&context.grpc, gc, &reply).ok());
  EXPECT_EQ(reply.blobs(), 8u);
  for (int i = 1; i < 3; ++i) EXPECT_TRUE(Upload(*bob_, TextOf(i)).ok()) << i;
  EXPECT_EQ(Upload(*bob_, TextOf(3)).error_code(), kExhausted);
}

TEST_F(QuotasTest, AnIdleUploadEndsAndLeavesNothing) {
  Start({.idle_upload = absl::Milliseconds(300)});
  CallContext context;
  v1::UploadReply reply;
  const auto writer = bob_->UploadBlob(&context.grpc, &reply);
  v1::UploadChunk chunk;
  chunk.set_sha256(Sha256Hex(TextOf(0)));
  chunk.set_total_bytes(TextOf(0).size());
  chunk.set_data(TextOf(0).substr(0, 1000));
  ASSERT_TRUE(writer->Write(chunk));
  const grpc::Status ended = writer->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(ended.error_message(), HasSubstr("send it again"));
  EXPECT_EQ(TemporaryFiles(), 0u);
  EXPECT_TRUE(Upload(*bob_, TextOf(0)).ok());
}

TEST_F(QuotasTest, AMemberHasFewUploadsAtATime) {
  Start({.uploads = {.of_member = 2, .in_all = 64}});
  std::vector<std::unique_ptr<CallContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::UploadChunk>>> writers;
  std::vector<v1::UploadReply> replies(2);
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<CallContext>());
    writers.push_back(bob_->UploadBlob(&contexts.back()->grpc, &replies[static_cast<size_t>(i)]));
    writers.back()->WaitForInitialMetadata();  // it has begun
  }
  const grpc::Status refused = Upload(*bob_, TextOf(0));
  EXPECT_EQ(refused.error_code(), kExhausted);
  EXPECT_THAT(refused.error_message(), HasSubstr("bob has 2 uploads"));
  EXPECT_TRUE(Upload(*eve_, TextOf(0)).ok());
  for (size_t i = 0; i < 2; ++i) {
    contexts[i]->grpc.TryCancel();
    writers[i]->Finish();
  }
}

TEST_F(QuotasTest, AMemberHasFewFollowers) {
  Start({.followers = {.of_member = 2, .in_all = 64}});
  std::string id, eves;
  ASSERT_TRUE(Upload(*bob_, TextOf(0)).ok());
  ASSERT_TRUE(Submit(*bob_, SmallSpec("tiny", 2), TextOf(0), &id).ok());
  ASSERT_TRUE(Upload(*eve_, TextOf(0)).ok());
  ASSERT_TRUE(Submit(*eve_, SmallSpec("eves", 2), TextOf(0), &eves).ok());
  std::vector<std::unique_ptr<CallContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::RunStatus>>> readers;
  const auto watch = [&](Stub& stub, const std::string& run) {
    contexts.push_back(std::make_unique<CallContext>());
    v1::RunRequest request;
    request.set_run(run);
    readers.push_back(stub.WatchRun(&contexts.back()->grpc, request));
    v1::RunStatus status;
    return readers.back()->Read(&status);
  };
  EXPECT_TRUE(watch(*bob_, id));
  EXPECT_TRUE(watch(*bob_, id));
  EXPECT_FALSE(watch(*bob_, id));
  const grpc::Status refused = readers.back()->Finish();
  EXPECT_EQ(refused.error_code(), kExhausted);
  EXPECT_THAT(refused.error_message(), HasSubstr("bob has 2 streams that follow"));
  EXPECT_TRUE(watch(*eve_, eves));
  readers.erase(readers.begin() + 2);
  for (const auto& context : contexts) context->grpc.TryCancel();
  for (const auto& reader : readers) reader->Finish();
}

TEST_F(QuotasTest, AMemberHasFewRunsAndLists) {
  Start({.queued_runs = {.of_member = 3, .in_all = 500}, .lists = 1});
  const auto over_list = [&](Stub& stub, const std::string& folder) {
    data::DataSet set{.vocabulary = 30'000, .bytes_per_token = 2, .chunk_bytes = 1 << 20};
    set.training.shards.push_back(
        {.tokens = 1000, .ids = {.file = "a", .bytes = 2000, .chunks = Sha256Hex(folder)}});
    const std::string list = data::ToJson({.sources = {{.folder = folder, .set = set}}});
    EXPECT_TRUE(Upload(stub, list).ok());
    RunSpec spec = SmallSpec("sets", 2);
    spec.data.text.clear();
    spec.data.sets = {{.from = folder, .weight = 1}};
    spec.data.list_sha256 = Sha256Hex(list);
    spec.data.vocabulary = 30'000;
    spec.data.upload = false;
    return Submit(stub, spec, "");
  };
  EXPECT_TRUE(over_list(*bob_, "/one").ok());
  EXPECT_TRUE(over_list(*bob_, "/one").ok());  // the same list
  const grpc::Status list = over_list(*bob_, "/two");
  EXPECT_EQ(list.error_code(), kExhausted);
  EXPECT_THAT(list.error_message(), HasSubstr("bob name 1 different lists"));
  EXPECT_TRUE(over_list(*eve_, "/two").ok());
  ASSERT_TRUE(Upload(*bob_, TextOf(0)).ok());
  EXPECT_TRUE(Submit(*bob_, SmallSpec("tiny", 2), TextOf(0)).ok());
  const grpc::Status queued = Submit(*bob_, SmallSpec("tiny", 2), TextOf(0));
  EXPECT_EQ(queued.error_code(), kExhausted);
  EXPECT_THAT(queued.error_message(), HasSubstr("3 runs of bob wait"));
  ASSERT_TRUE(Upload(*eve_, TextOf(0)).ok());
  EXPECT_TRUE(Submit(*eve_, SmallSpec("tiny", 2), TextOf(0)).ok());
}

TEST_F(QuotasTest, AMemberTakesItsShareOfTheTimeByQuestions) {
  // Every answer takes more than this, and no time gives it back.
  Start({.time_share = 1e-12, .time_burst = absl::Nanoseconds(1)});
  const auto list = [](Stub& stub) {
    CallContext context;
    v1::ListRunsReply reply;
    return stub.ListRuns(&context.grpc, {}, &reply);
  };
  // bob_ and eve_ have asked once, when they came.
  const grpc::Status refused = list(*bob_);
  EXPECT_EQ(refused.error_code(), kExhausted);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("answers to bob"), HasSubstr("ask again")));
  // What is no question goes on, and so do admins.
  EXPECT_TRUE(Upload(*bob_, TextOf(0)).ok());
  EXPECT_TRUE(Submit(*bob_, SmallSpec("tiny", 2), TextOf(0)).ok());
  EXPECT_TRUE(list(*ann_).ok());
}

TEST_F(QuotasTest, AMemberHasFewConnections) {
  Start({.connections = 3});
  // One is that of bob_. Each channel has a connection of its own.
  std::vector<std::unique_ptr<Stub>> more;
  grpc::Status last;
  for (int i = 0; i < 3; ++i) {
    more.push_back(v1::ControlService::NewStub(AccessOf("bob", Role::kUser)->Dial().channel));
    CallContext context;
    v1::InfoReply reply;
    last = more.back()->Info(&context.grpc, {}, &reply);
    EXPECT_EQ(last.ok(), i < 2) << i << ": " << last.error_message();
  }
  EXPECT_EQ(last.error_code(), kExhausted);
  EXPECT_THAT(last.error_message(), HasSubstr("bob has 3 connections"));
  EXPECT_TRUE(Upload(*eve_, TextOf(0)).ok());
  // Room again when one has ended.
  more.erase(more.begin());
  const Deadline deadline = Deadline::After(absl::FromChrono(kPatience));
  while (!last.ok() && !deadline.Expired()) {
    CallContext context;
    v1::InfoReply reply;
    last = more.back()->Info(&context.grpc, {}, &reply);
  }
  EXPECT_TRUE(last.ok()) << last.error_message();
}

}  // namespace
}  // namespace longhaul::coordinator
