// Two coordinators and a witness in this process, over real connections.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <fstream>
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
#include "coordinator/standby/ask_term.h"
#include "coordinator/standby/follower.h"
#include "coordinator/store/store_check.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"
#include "proto/witness/witness.h"
#include "run/file/run_spec.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_dump.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
// More than a leader's beats, which come each second.
constexpr absl::Duration kShortLease = absl::Milliseconds(2500);

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
    return {.peer = address,
            .listen = FreeAddress(),
            .state_dir = Dir(name),
            .token_file = Dir("first") + "/token",
            .version = "1",
            .lease = kShortLease};
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
  // The coordinator's answer.
  v1::LeadershipInfo LeadsAt(const std::string& address) {
    if (watcher_ == nullptr || watcher_->address() != address) watcher_ = Join(address, "watcher");
    const auto stub = v1::ControlService::NewStub(watcher_->Dial().channel);
    grpc::ClientContext context;
    v1::InfoReply reply;
    const Status status = FromGrpc(stub->Info(&context, {}, &reply));
    EXPECT_TRUE(status.ok()) << status;
    return reply.leadership();
  }
  // Whether a standby (the one that listens there) has everything that `server` has.
  bool IsFollowed(const CoordinatorServer& server, const std::string& by = "") {
    const v1::LeadershipInfo leads = LeadsAt(server.address());
    return leads.standby().state() == v1::LeadershipInfo::Standby::IN_SYNC &&
           (by.empty() || leads.standby().address() == by);
  }
  bool InSync(const std::string& name) const {
    return ReadLeadership(Dir(name)).value().seat.in_sync.size() == 2;
  }
  // A third voter, which joins at `first`.
  std::unique_ptr<witness::Witness> Watch(const std::string& first, const std::string& second) {
    const auto admin = Join(first, "maker");
    const auto stub = v1::MemberService::NewStub(admin->Dial().channel);
    grpc::ClientContext context;
    v1::CreateTokenRequest request;
    v1::CreateTokenReply reply;
    request.set_role("witness");
    request.set_uses(1);
    const Status status = FromGrpc(stub->CreateToken(&context, request, &reply));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(WriteFileAtomic(Dir("witness-token"), reply.token() + "\n", 0600).ok());
    auto started = witness::Witness::Start({.coordinators = {first, second},
                                            .state_dir = Dir("witness"),
                                            .token_file = Dir("witness-token"),
                                            .name = "witness",
                                            .version = "1",
                                            .lease = kShortLease});
    EXPECT_TRUE(started.ok()) << started.status();
    return started.ok() ? *std::move(started) : nullptr;
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
  // A standby applies a change when it hears that the change is committed.
  void ExpectSameStores(const std::string& a, const std::string& b) const {
    EXPECT_TRUE(Becomes([&] {
      return DumpStore(Dir(a) + "/store.db") == DumpStore(Dir(b) + "/store.db");
    })) << DumpStore(Dir(a) + "/store.db")
        << "\n----\n"
        << DumpStore(Dir(b) + "/store.db");
  }

  testing::TempDir folder_;
  std::shared_ptr<Access> watcher_;
};

TEST_F(FollowTest, WhatIsAnsweredIsAtTheStandby) {
  const auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  ASSERT_TRUE(Upload(*ann, "before").ok());
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
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

// The bytes of a file change under a coordinator. Whichever of the two has a whole copy gives it.
TEST_F(FollowTest, ADamagedBlobComesFromTheOtherSide) {
  ServerOptions options = Options("first");
  options.scrub = {.first = absl::ZeroDuration(), .pause = absl::Milliseconds(50)};
  const auto server = Serve(options);
  const auto ann = Join(server->address(), "ann");
  const std::string bytes = "0123456789", name = Sha256Hex(bytes);
  FollowerOptions following = Following(server->address());
  following.scrub = options.scrub;
  const auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  ASSERT_TRUE(Upload(*ann, bytes).ok());
  ASSERT_TRUE(Becomes([&] { return Blobs("standby").contains(name); }));
  for (const char* damaged : {"first", "standby"}) {
    const std::string path = Dir(damaged) + "/blobs/" + name;
    ASSERT_TRUE(WriteFileAtomic(path, "012345678X").ok());
    EXPECT_TRUE(Becomes([&] { return ReadFile(path).value_or("") == bytes; })) << damaged;
  }
}

TEST_F(FollowTest, ADamagedStoreOfAStandbyIsCopiedAnew) {
  const auto server = Serve(Options("first"));
  FollowerOptions following = Following(server->address());
  following.store_check = {.first = absl::ZeroDuration(), .pause = absl::Milliseconds(50)};
  const auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  const std::string path = Dir("standby") + "/store.db";
  // Behind the first page, which SQLite has in its memory.
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(std::filesystem::file_size(path) - 4096, '\xff');
  }
  ASSERT_TRUE(absl::IsDataLoss(CheckStore(path, [] { return false; })));
  EXPECT_TRUE(Becomes([&] { return CheckStore(path, [] { return false; }).ok(); }));
  EXPECT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  ExpectSameStores("first", "standby");
}

// Nothing can be done about a blob that is damaged and nowhere else, and the rest goes on.
TEST_F(FollowTest, ADamagedBlobStopsNothingElse) {
  const auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  ASSERT_TRUE(Upload(*ann, "damaged").ok());
  ASSERT_TRUE(WriteFileAtomic(Dir("first") + "/blobs/" + Sha256Hex("damaged"), "DAMAGED").ok());
  ASSERT_TRUE(Upload(*ann, "whole, and longer").ok());
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return Blobs("standby").contains(Sha256Hex("whole, and longer")); }));
  EXPECT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  // The leader finds out by the follower's word, and keeps no false bytes.
  EXPECT_TRUE(Becomes([&] { return !Blobs("first").contains(Sha256Hex("damaged")); }));
  Join(server->address(), "bob");
  ExpectSameStores("first", "standby");
}

// In pieces, as a run of many files takes more than one of them.
TEST_F(FollowTest, AChangeMayBeLong) {
  const auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  const std::string text(1000, 'x');
  ASSERT_TRUE(Upload(*ann, text).ok());
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));

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
  EXPECT_TRUE(IsFollowed(*server));
}

TEST_F(FollowTest, AStandbyThatComesBackHasWhatIsThereNow) {
  auto server = Serve(Options("first"));
  const auto ann = Join(server->address(), "ann");
  ASSERT_TRUE(Upload(*ann, "gone").ok());
  auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  follower.reset();
  std::filesystem::remove(Dir("first") + "/blobs/" + Sha256Hex("gone"));
  ASSERT_TRUE(Upload(*ann, "new").ok());
  Join(server->address(), "bob");
  follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  ExpectSameStores("first", "standby");
  EXPECT_EQ(Blobs("standby"), std::set<std::string>{Sha256Hex("new")});

  // The coordinator begins anew at the same address: the standby follows that.
  ServerOptions options = Options("first");
  options.listen = server->address();
  server.reset();
  server = Serve(options);
  Join(server->address(), "cy");
  ASSERT_TRUE(Becomes([&] {
    return IsFollowed(*server) &&
           DumpStore(Dir("first") + "/store.db") == DumpStore(Dir("standby") + "/store.db");
  }));
}

TEST_F(FollowTest, OneStandbyAtATime) {
  const auto server = Serve(Options("first"));
  const FollowerOptions one = Following(server->address());
  auto follower = Follow(one);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server, one.listen); }));
  const FollowerOptions two = Following(server->address(), "other");
  const auto other = Follow(two);
  Join(server->address(), "ann");
  EXPECT_FALSE(IsFollowed(*server, two.listen));
  follower.reset();
  EXPECT_TRUE(Becomes([&] { return IsFollowed(*server, two.listen); }));
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

TEST_F(FollowTest, WithAWitnessTheStandbyTakesOverAndTheOldOneFollows) {
  auto server = Serve(Options("first"));
  const std::string address = server->address();
  const FollowerOptions following = Following(address);
  auto follower = Follow(following);
  const auto witness = Watch(address, following.listen);
  ASSERT_TRUE(Becomes([&] { return InSync("first"); }));
  ASSERT_TRUE(Becomes([&] { return witness->record().in_sync.size() == 2; }));
  const auto ann = Join(address, "ann");
  ASSERT_TRUE(Upload(*ann, "kept").ok());
  server.reset();
  ASSERT_TRUE(Becomes([&] { return follower->elected().has_value(); }));
  ServerOptions taking = Options("standby");
  taking.elected = follower->elected();
  taking.listen = following.listen;
  taking.peer = address;
  follower.reset();
  auto second = Serve(taking);
  EXPECT_EQ(LeadsAt(second->address()).term(), 2u);
  EXPECT_EQ(Blobs("standby"), std::set<std::string>{Sha256Hex("kept")});
  EXPECT_THAT(DumpStore(Dir("standby") + "/store.db"), HasSubstr("'ann'"));

  // The old one does not know whether the other was elected, so it asks.
  EXPECT_THAT(CoordinatorServer::Start(Options("first")).status().ToString(),
              HasSubstr("may have been elected"));
  EXPECT_EQ(*CoordinatorToFollow(Dir("first"), "", false), following.listen);
  FollowerOptions back = Following(second->address(), "first");
  back.listen = address;
  auto old = Follow(back);
  ASSERT_TRUE(Becomes([&] { return InSync("standby"); }));
  ExpectSameStores("first", "standby");
  EXPECT_FALSE(old->elected().has_value());
  EXPECT_EQ(ReadLeadership(Dir("first"))->role, LeaderRole::kStandby);
}

// The witness knows at once that nobody else can have been elected.
TEST_F(FollowTest, ALeaderThatBeginsAnewIsElectedAgain) {
  auto server = Serve(Options("first"));
  const std::string address = server->address();
  const FollowerOptions following = Following(address);
  const auto follower = Follow(following);
  const auto witness = Watch(address, following.listen);
  ASSERT_TRUE(Becomes([&] { return InSync("first"); }));
  ASSERT_TRUE(Becomes([&] { return witness->record().in_sync.size() == 2; }));
  server.reset();
  FollowerOptions again = Following(following.listen, "first");
  again.listen = address;
  auto asks = Follow(again);
  ASSERT_TRUE(Becomes([&] { return asks->elected() || follower->elected(); }));
  ASSERT_TRUE(asks->elected().has_value());
  ServerOptions options = Options("first");
  options.listen = address;
  options.elected = asks->elected();
  asks.reset();
  server = Serve(options);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  EXPECT_EQ(LeadsAt(address).term(), 2u);
}

TEST_F(FollowTest, WithoutAWitnessNobodyTakesOver) {
  auto server = Serve(Options("first"));
  const std::string address = server->address();
  const FollowerOptions following = Following(address);
  auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  EXPECT_THAT(LeadsAt(address).notes(), HasSubstr("does not take over by itself"));
  server.reset();
  EXPECT_FALSE(InSync("first"));
  // It waits for a person. The old one leads when it comes back.
  EXPECT_FALSE(follower->elected().has_value());
  follower.reset();
  EXPECT_THAT(CoordinatorServer::Start(Options("standby")).status().ToString(),
              HasSubstr("the state directory of a standby of " + address));
  EXPECT_EQ(*CoordinatorToFollow(Dir("first"), "", false), "");
  server = Serve(Options("first"));
  EXPECT_EQ(LeadsAt(server->address()).term(), 2u);
  server.reset();
  // A person may force it.
  ServerOptions options = Options("standby");
  options.claim = Claim::kForce;
  server = Serve(options);
  EXPECT_GT(ReadLeadership(Dir("standby"))->term(), 1'000'000'000u);
  server.reset();
  options.claim = Claim::kOwn;
  EXPECT_NE(Serve(options), nullptr);
}

TEST_F(FollowTest, TheDirectoryOfAnotherAuthorityGetsTheNewOneAtItsPort) {
  Serve(Options("standby"));  // once, without runs
  const auto first = Serve(Options("first"));
  const FollowerOptions following = Following(first->address());
  const auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*first); }));
  const auto authority = Authority::FromPem(*ReadFile(Dir("first") + "/authority.pem"));
  ASSERT_TRUE(authority.ok());
  const Status status = AskTerm(following.listen, authority->certificate_pem(), kPatience).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

// What waits for the standby must not hold up the threads by which the standby's answer comes.
TEST_F(FollowTest, CallersDoNotCutItOff) {
  const auto server = Serve(Options("first"));
  const auto follower = Follow(Following(server->address()));
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
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
    for (int i = 0; i < 15 && prompt; ++i) {
      const MonoTime began = Now();
      Join(server->address(), fmt::format("joins{}-{}", round, i));
      prompt = prompt && Now() - began < FollowSession::kPatience;
    }
    prompt = prompt && IsFollowed(*server);
  }
  EXPECT_TRUE(prompt);
  over = true;
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace longhaul::coordinator
