// What a standby keeps, and what it refuses.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "coordinator/rpc/follow_session.h"
#include "coordinator/standby/ask_term.h"
#include "coordinator/store/store_check.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "run/file/run_spec.h"
#include "tests/support/state_harness.h"
#include "tests/unit/coordinator/standby/follow_fixture.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

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
