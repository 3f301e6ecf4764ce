// A coordinator and its standby in this process, over real connections.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/unique_fd.h"
#include "coordinator/rpc/follow_session.h"
#include "coordinator/rpc/server.h"
#include "coordinator/standby/fencer.h"
#include "coordinator/standby/follower.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"
#include "run/file/run_spec.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_dump.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

class FollowTest : public ::testing::Test {
 protected:
  std::string Dir(const std::string& name) const { return folder_.path() + "/" + name; }
  ServerOptions Options(const std::string& name) const {
    ServerOptions options{.listen = "127.0.0.1:0", .state_dir = Dir(name)};
    options.state.version = "1";
    return options;
  }
  static std::unique_ptr<CoordinatorServer> Serve(const ServerOptions& options) {
    auto server = CoordinatorServer::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }
  // Free when this was called. Its coordinator asks a standby at the address that it said.
  static std::string FreeAddress() {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket.get(), raw, length), 0);
    EXPECT_EQ(::getsockname(socket.get(), raw, &length), 0);
    return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  }
  FollowerOptions Following(const std::string& address, const std::string& name = "standby") const {
    return {.predecessor = address,
            .listen = FreeAddress(),
            .state_dir = Dir(name),
            .token_file = Dir("first") + "/token",
            .version = "1"};
  }
  static std::unique_ptr<Follower> Follow(const FollowerOptions& options) {
    auto follower = Follower::Start(options);
    EXPECT_TRUE(follower.ok()) << follower.status();
    return follower.ok() ? *std::move(follower) : nullptr;
  }

  // What follows is compared with each look of 20 ms: files of another thread tell no event.
  static bool Becomes(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!condition()) {
      if (deadline.Expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  bool IsWhole(const std::string& name = "standby") const {
    return ReadLeadership(Dir(name)).value().whole;
  }
  std::shared_ptr<Access> Join(const std::string& address, const std::string& name) const {
    auto access = Access::Open({.addresses = {address},
                                .token_file = Dir("first") + "/token",
                                .credentials_file = Dir(name + ".pem"),
                                .name = name},
                               kPatience);
    EXPECT_TRUE(access.ok()) << access.status();
    return access.ok() ? *access : nullptr;
  }
  // OK: it is stored, here and there.
  static Status Upload(const Access& access, const std::string& bytes) {
    const auto stub = v1::ControlService::NewStub(access.Dial().channel);
    grpc::ClientContext context;
    v1::UploadReply reply;
    const auto writer = stub->UploadBlob(&context, &reply);
    v1::UploadChunk chunk;
    chunk.set_sha256(Sha256Hex(bytes));
    chunk.set_total_bytes(bytes.size());
    chunk.set_data(bytes);
    writer->Write(chunk);
    writer->WritesDone();
    return FromGrpc(writer->Finish());
  }
  std::set<std::string> Blobs(const std::string& name) const {
    std::set<std::string> blobs;
    for (const auto& entry : std::filesystem::directory_iterator(Dir(name) + "/blobs")) {
      blobs.insert(entry.path().filename().string());
    }
    return blobs;
  }
  // Both have what was answered. Entries of the audit log are written after the answer.
  void ExpectSameStores(const std::string& a, const std::string& b) const {
    EXPECT_EQ(DumpStore(Dir(a) + "/store.db", /*left_out=*/"audit"),
              DumpStore(Dir(b) + "/store.db", /*left_out=*/"audit"));
    EXPECT_TRUE(Becomes(
        [&] { return DumpStore(Dir(a) + "/store.db") == DumpStore(Dir(b) + "/store.db"); }));
  }

  testing::TempDir folder_;
};

TEST_F(FollowTest, WhatIsAnsweredIsAtTheStandby) {
  const auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  ASSERT_TRUE(Upload(*ann, "before").ok());
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  EXPECT_EQ(*ReadFile(Dir("first") + "/authority.pem"),
            *ReadFile(Dir("standby") + "/authority.pem"));
  ExpectSameStores("first", "standby");

  Join(server->address(), "bob");
  ExpectSameStores("first", "standby");
  ASSERT_TRUE(Upload(*ann, "after").ok());
  EXPECT_EQ(Blobs("standby"), (std::set<std::string>{Sha256Hex("before"), Sha256Hex("after")}));

  // Blobs that nobody names go, there as here.
  const auto stub = v1::ControlService::NewStub(ann->Dial().channel);
  grpc::ClientContext context;
  v1::CollectGarbageRequest request;
  for (const std::string& blob : Blobs("first")) {
    std::filesystem::last_write_time(
        Dir("first") + "/blobs/" + blob,
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
  }
  v1::CollectGarbageReply reply;
  ASSERT_TRUE(stub->CollectGarbage(&context, request, &reply).ok());
  EXPECT_TRUE(Blobs("first").empty());
  EXPECT_TRUE(Becomes([&] { return Blobs("standby").empty(); }));
}

// In pieces, as a run of many files takes more than one of them.
TEST_F(FollowTest, AChangeMayBeLong) {
  const auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  const std::string text(1000, 'x');
  ASSERT_TRUE(Upload(*ann, text).ok());
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));

  v1::SubmitRequest request;
  request.set_run_yaml(ToYaml(SmallSpec("long", 2)));
  request.set_file_name("run.yaml");
  for (int k = 0; k < 9'000; ++k) {
    v1::DataFile& file = *request.add_data_files();
    file.set_name(fmt::format("{:0>100}.txt", k));
    file.set_sha256(Sha256Hex(text));
    file.set_bytes(text.size());
  }
  ASSERT_GT(request.ByteSizeLong(), kChunkBytes);
  const auto stub = v1::ControlService::NewStub(ann->Dial().channel);
  {  // A stranger's first call has to be short.
    grpc::ClientContext context;
    v1::ListRunsReply runs;
    ASSERT_TRUE(stub->ListRuns(&context, {}, &runs).ok());
  }
  grpc::ClientContext context;
  v1::SubmitReply reply;
  const Status status = FromGrpc(stub->Submit(&context, request, &reply));
  ASSERT_TRUE(status.ok()) << status;
  // Its data are prepared meanwhile, which changes the store, too.
  EXPECT_TRUE(Becomes([&] {
    const auto store = DumpStore(Dir("standby") + "/store.db");
    return store == DumpStore(Dir("first") + "/store.db");
  }));
  EXPECT_THAT(DumpStore(Dir("standby") + "/store.db"), HasSubstr(reply.run_id()));
  EXPECT_TRUE(IsWhole());
}

TEST_F(FollowTest, AStandbyThatComesBackHasWhatIsThereNow) {
  auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  ASSERT_TRUE(Upload(*ann, "gone").ok());
  auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  follower.reset();
  EXPECT_TRUE(IsWhole());  // for a person who looks; it follows again before it counts
  std::filesystem::remove(Dir("first") + "/blobs/" + Sha256Hex("gone"));
  ASSERT_TRUE(Upload(*ann, "new").ok());
  Join(server->address(), "bob");
  follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  ExpectSameStores("first", "standby");
  EXPECT_EQ(Blobs("standby"), std::set<std::string>{Sha256Hex("new")});

  // The coordinator begins anew at the same address: the standby follows that.
  ServerOptions options = Options("first");
  options.listen = server->address();
  server.reset();
  server = Serve(options);
  Join(server->address(), "cy");
  ASSERT_TRUE(Becomes([&] {
    return IsWhole() &&
           DumpStore(Dir("first") + "/store.db") == DumpStore(Dir("standby") + "/store.db");
  }));
}

TEST_F(FollowTest, OneStandbyAtATime) {
  const auto server = Serve(Options("first"));
  auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  const auto other = Follow(Following(server->address(), "other"));
  Join(server->address(), "ann");
  EXPECT_FALSE(IsWhole("other"));
  follower.reset();
  EXPECT_TRUE(Becomes([&] { return IsWhole("other"); }));
}

TEST_F(FollowTest, AnotherVersionIsRefused) {
  const auto server = Serve(Options("first"));
  FollowerOptions options = Following(server->address());
  options.version = "2";
  const auto access = Join(server->address(), "ann");
  const auto stub = v1::StandbyService::NewStub(access->Dial().channel);
  grpc::ClientContext context;
  const auto stream = stub->Follow(&context);
  v1::FollowerMessage hello;
  hello.mutable_hello()->set_version("2");
  stream->Write(hello);
  v1::FollowedMessage message;
  while (stream->Read(&message)) EXPECT_FALSE(message.has_begin());
  const Status status = FromGrpc(stream->Finish());
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("has to be of the coordinator's version, which is 1"));
}

TEST_F(FollowTest, TheDirectoryOfACoordinatorWithRunsIsNotReplaced) {
  const auto server = Serve(Options("first"));
  {
    const auto other = Serve(Options("standby"));
    auto store =
        sqlite::Database::Open(Dir("standby") + "/store.db", SQLITE_OPEN_READWRITE).value();
    ASSERT_TRUE(store
                    .Execute("INSERT INTO runs VALUES('r','r','done','',1,1,'',x'','',NULL,NULL,'',"
                             "0,0,0,0,0,0,'','',0,0,x'')")
                    .ok());
  }
  const Status status = Follower::Start(Following(server->address())).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("has 1 runs, which following another would replace"));
}

TEST_F(FollowTest, OneOfAnOlderTermIsFencedForGood) {
  auto first = Serve(Options("first"));
  const std::string address = first->address();
  auto follower = Follow(Following(address));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  follower.reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(CoordinatorServer::Start(Options("standby")).status()));
  ServerOptions options = Options("standby");
  options.claim = Claim::kTakeover;
  const auto second = Serve(options);
  // It is told while it serves, ends, and does not serve again.
  EXPECT_TRUE(Becomes([&] { return !first->failure().ok(); }));
  EXPECT_THAT(first->failure().ToString(), HasSubstr("another coordinator has taken over"));
  first.reset();
  EXPECT_THAT(CoordinatorServer::Start(Options("first")).status().ToString(),
              HasSubstr(second->address() + " (term 2)"));
  EXPECT_TRUE(Becomes([&] { return ReadLeadership(Dir("standby"))->predecessor.empty(); }));
}

TEST_F(FollowTest, OneThatWasAwayAsksItsStandby) {
  ServerOptions options = Options("first");
  auto first = Serve(options);
  const FollowerOptions following = Following(first->address());
  auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  EXPECT_TRUE(Becomes([&] { return ReadLeadership(Dir("first"))->standby == following.listen; }));
  first.reset();
  follower.reset();
  ServerOptions taking = Options("standby");
  taking.listen = following.listen;
  taking.claim = Claim::kTakeover;
  auto second = Serve(taking);
  {
    const Status status = CoordinatorServer::Start(options).status();
    EXPECT_THAT(status.ToString(), HasSubstr(following.listen + " (term 2)"));
  }
  // The other way round: it has a directory of its own term, and follows its successor at once.
  ASSERT_TRUE(WriteLeadership(Dir("first"), {.term = 1, .standby = following.listen}).ok());
  auto old = Follow(Following(following.listen, "first"));
  EXPECT_TRUE(Becomes([&] { return IsWhole("first"); }));
  EXPECT_EQ(ReadLeadership(Dir("first"))->term, 2u);
}

TEST_F(FollowTest, OneWhoseStandbyCannotBeAskedDoesNotServeOnItsOwn) {
  ServerOptions options = Options("first");
  auto first = Serve(options);
  const FollowerOptions following = Following(first->address());
  auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return ReadLeadership(Dir("first"))->standby == following.listen; }));
  first.reset();
  // One that waits says that it has not taken over.
  first = Serve(options);
  first.reset();
  follower.reset();
  const Status status = CoordinatorServer::Start(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("may have taken over; it cannot be asked"));
  EXPECT_THAT(status.ToString(), HasSubstr("--force serves without it"));
  options.claim = Claim::kForce;
  first = Serve(options);
  EXPECT_GT(ReadLeadership(Dir("first"))->term, 1'000'000'000u);
  first.reset();
  // From then on it serves by itself.
  options.claim = Claim::kOwn;
  Serve(options);
}

TEST_F(FollowTest, AStandbyThatWasAwayForLongIsNotAsked) {
  ServerOptions options = Options("first");
  options.standby_is_stale = absl::Milliseconds(300);
  options.worker_token_file = Dir("first") + "/worker-token";
  auto first = Serve(options);
  const auto access = Access::Open({.addresses = {first->address()},
                                    .token_file = options.worker_token_file,
                                    .credentials_file = Dir("worker.pem"),
                                    .name = "w",
                                    .worker_id = "w-id"},
                                   kPatience);
  ASSERT_TRUE(access.ok()) << access.status();
  const auto stub = v1::WorkerService::NewStub((*access)->Dial().channel);
  grpc::ClientContext context;
  const auto session = stub->Session(&context);
  v1::WorkerMessage hello;
  *hello.mutable_hello() = HelloOf("w");
  hello.mutable_hello()->set_worker_id("w-id");
  session->Write(hello);
  v1::WorkerCommand welcome;
  ASSERT_TRUE(session->Read(&welcome) && welcome.has_welcome()) << welcome.DebugString();

  auto follower = Follow(Following(first->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  follower.reset();
  EXPECT_TRUE(Becomes([&] { return ReadLeadership(Dir("first"))->standby_is_stale; }));
  context.TryCancel();
  session->Finish();
  first.reset();
  Serve(options);
}

TEST_F(FollowTest, TheDirectoryOfAnotherAuthorityGetsTheNewOneAtItsPort) {
  Serve(Options("standby"));  // once, without runs
  const auto first = Serve(Options("first"));
  const FollowerOptions following = Following(first->address());
  const auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  const auto authority = Authority::FromPem(*ReadFile(Dir("first") + "/authority.pem"));
  ASSERT_TRUE(authority.ok());
  const Status status = AskTerm(following.listen, authority->certificate_pem(), kPatience).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST_F(FollowTest, OneThatListensEverywhereIsFoundWhereItCallsFrom) {
  auto first = Serve(Options("first"));
  auto follower = Follow(Following(first->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  follower.reset();
  ServerOptions options = Options("standby");
  options.listen = "0.0.0.0:0";
  options.claim = Claim::kTakeover;
  const auto second = Serve(options);
  EXPECT_TRUE(Becomes([&] { return !first->failure().ok(); }));
  EXPECT_THAT(ReadLeadership(Dir("first"))->successor, ::testing::StartsWith("127.0.0.1:"));
}

// What waits for the standby must not hold up the threads by which the standby's answer comes.
TEST_F(FollowTest, CallersDoNotCutItOff) {
  const auto server = Serve(Options("first"));
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsWhole(); }));
  std::atomic<bool> over = false;
  std::vector<std::thread> callers;
  for (int i = 0; i < 16; ++i) {
    callers.emplace_back([&, access = Join(server->address(), fmt::format("caller{}", i))] {
      const auto stub = v1::ControlService::NewStub(access->Dial().channel);
      while (!over) {
        grpc::ClientContext context;
        v1::ListRunsReply reply;
        EXPECT_TRUE(stub->ListRuns(&context, v1::ListRunsRequest(), &reply).ok());
      }
    });
  }
  // A join is slow in every round if callers keep the standby's answers back; a busy machine makes
  // it slow in one.
  bool prompt = false;
  for (int round = 0; round < 3 && !prompt; ++round) {
    prompt = true;
    for (int i = 0; i < 40; ++i) {
      const MonoTime began = Now();
      Join(server->address(), fmt::format("joins{}-{}", round, i));
      prompt = prompt && Now() - began < FollowSession::kPatience;
    }
    prompt = prompt && IsWhole();
  }
  EXPECT_TRUE(prompt);
  over = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_F(FollowTest, NobodyIsFencedByAnOlderTermOrAWorker) {
  const auto server = Serve(Options("first"));
  const auto access = Join(server->address(), "ann");
  const auto stub = v1::StandbyService::NewStub(access->Dial().channel);
  v1::FenceRequest request;
  v1::FenceReply reply;
  request.set_term(1);
  grpc::ClientContext context;
  EXPECT_THAT(FromGrpc(stub->Fence(&context, request, &reply)).ToString(),
              HasSubstr("this coordinator has term 1, the caller 1"));
  EXPECT_TRUE(server->failure().ok());
}

}  // namespace
}  // namespace longhaul::coordinator
