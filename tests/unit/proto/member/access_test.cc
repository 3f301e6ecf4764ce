// Which of several coordinators is at hand, and how one becomes a member where the first of them
// does not serve.
#include "proto/member/access.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/file.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"
#include "tests/support/silent_listener.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

using ::longhaul::testing::SilentListener;
using ::longhaul::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(10);

// A coordinator that takes in everybody, or a standby of it.
class FakeMembers : public v1::MemberService::Service {
 public:
  explicit FakeMembers(const Authority& authority) : authority_(authority) {}
  ~FakeMembers() override { Stop(); }
  // On a free port, or on the one that it had before Stop.
  void Start() {
    const StatusOr<ServerIdentity> identity = authority_.MakeServerIdentity(absl::Now());
    ASSERT_TRUE(identity.ok()) << identity.status();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(fmt::format("127.0.0.1:{}", port_), TlsServer(*identity), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  void Stop() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    ++joined_count;
    return Sign(request->request_pem(), reply);
  }
  grpc::Status ListMembers(grpc::ServerContext* context, const v1::ListMembersRequest*,
                           v1::ListMembersReply*) override {
    if (!signer.empty()) context->AddInitialMetadata(kSignerKey, signer);
    return grpc::Status::OK;
  }
  grpc::Status Renew(grpc::ServerContext*, const v1::RenewRequest* request,
                     v1::JoinReply* reply) override {
    return Sign(request->request_pem(), reply);
  }

  std::atomic<bool> standby{false};
  std::atomic<bool> drops_replies{false};  // signs, and the caller does not hear of it
  std::atomic<int> signed_count{0}, joined_count{0};
  absl::Duration age = absl::ZeroDuration();  // of certificates, which last for an hour
  std::string authority_pem;                  // what members are to trust; "": says nothing of it
  std::string signer;                         // said with every reply; "": nothing is

 private:
  grpc::Status Sign(const std::string& request_pem, v1::JoinReply* reply) {
    if (standby) {
      return {grpc::StatusCode::UNAVAILABLE,
              "this is the standby of h:7070, which it has not taken over"};
    }
    const StatusOr<std::string> certificate =
        authority_.Sign(request_pem, {.name = "somebody", .role = Role::kUser, .worker_id = {}},
                        absl::Now() - age, absl::Hours(1));
    if (!certificate.ok()) return ToGrpc(certificate.status());
    ++signed_count;
    if (drops_replies) return {grpc::StatusCode::ABORTED, "the reply was lost"};
    reply->set_certificate_pem(*certificate);
    reply->set_authority_pem(authority_pem);
    return grpc::Status::OK;
  }

  const Authority& authority_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(authority_.ok()) << authority_.status();
    token_file_ = NewTokenFile(*authority_);
  }
  std::string NewTokenFile(const Authority& authority) const {
    const JoinToken token = NewJoinToken(Role::kUser, authority.fingerprint());
    std::string file = folder_.path() + "/token-" + RandomUuid();
    std::ofstream(file) << ToString(token);
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    return file;
  }
  StatusOr<std::shared_ptr<Access>> Open(std::vector<std::string> addresses) {
    return Open(std::move(addresses), token_file_);
  }
  StatusOr<std::shared_ptr<Access>> Open(std::vector<std::string> addresses, std::string token) {
    return Access::Open({.addresses = std::move(addresses),
                         .token_file = std::move(token),
                         .credentials_file = folder_.path() + "/me.pem"},
                        kLimit);
  }

  TempDir folder_;
  std::string token_file_;
  StatusOr<Authority> authority_ = Authority::Make(absl::Now());
  FakeMembers first_{*authority_}, second_{*authority_};
};

TEST_F(AccessTest, TheNextOneIsAtHandOnceForAllWhoFoundThatOneDoesNotServe) {
  const auto access = Access::PlainOfSeveral({"a:1", "b:1", "c:1"}, "");
  EXPECT_FALSE(access->alone());
  const Access::Connection one = access->Dial();
  const Access::Connection two = access->Dial();
  EXPECT_EQ(one.address, "a:1");
  access->GoOnFrom(one.generation);
  access->GoOnFrom(two.generation);  // the same news
  EXPECT_EQ(access->address(), "b:1");
  EXPECT_GT(access->generation(), one.generation);
  access->GoOnFrom(access->generation());
  access->GoOnFrom(access->generation());
  EXPECT_EQ(access->Dial().address, "a:1");
}

TEST_F(AccessTest, OneAloneStaysAndKeepsItsChannels) {
  const auto access = Access::Plain("a:1", "");
  EXPECT_TRUE(access->alone());
  const uint64_t before = access->generation();
  access->GoOnFrom(before);
  EXPECT_EQ(access->address(), "a:1");
  EXPECT_EQ(access->generation(), before);
}

TEST_F(AccessTest, AsksEachOnceUntilOneServes) {
  const auto access = Access::PlainOfSeveral({"a:1", "b:1", "c:1"}, "");
  std::vector<std::string> asked;
  EXPECT_TRUE(access
                  ->AskEach([&](const std::string& address) {
                    asked.push_back(address);
                    return address == "b:1" ? absl::OkStatus() : absl::UnavailableError("down");
                  })
                  .ok());
  EXPECT_THAT(asked, ElementsAre("a:1", "b:1"));
  EXPECT_EQ(access->address(), "b:1");
  asked.clear();
  const Status in_vain = access->AskEach([&](const std::string& address) {
    asked.push_back(address);
    return absl::UnavailableError(address == "c:1" ? "c:1: no route" : "down");
  });
  EXPECT_EQ(in_vain, absl::UnavailableError("b:1: down; c:1: no route; a:1: down"));
  EXPECT_THAT(asked, ElementsAre("b:1", "c:1", "a:1"));
  EXPECT_EQ(access->address(), "b:1");
  // What one says that serves is the answer.
  asked.clear();
  EXPECT_EQ(access->AskEach([&](const std::string& address) {
    asked.push_back(address);
    return absl::PermissionDeniedError("no");
  }),
            absl::PermissionDeniedError("no"));
  EXPECT_THAT(asked, ElementsAre("b:1"));
}

TEST_F(AccessTest, OneAloneIsAskedOnceInItsOwnWords) {
  const auto access = Access::Plain("a:1", "");
  EXPECT_EQ(access->AskEach([](const std::string&) { return absl::UnavailableError("down"); }),
            absl::UnavailableError("down"));
}

TEST_F(AccessTest, JoinsWhereTheFirstIsDown) {
  first_.Start();
  first_.Stop();
  second_.Start();
  const auto access = Open({first_.address(), second_.address()});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ((*access)->address(), second_.address());
  EXPECT_TRUE(LoadCredentials(folder_.path() + "/me.pem")->joined());
}

TEST_F(AccessTest, JoinsWhereTheFirstNeverAnswers) {
  const SilentListener silent;
  second_.Start();
  const MonoTime begin = Now();
  const auto access = Open({silent.address(), second_.address()});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ((*access)->address(), second_.address());
  // One alone would have been given all of the limit.
  EXPECT_LT(Now() - begin, kLimit);
}

TEST_F(AccessTest, JoinsWhereTheFirstIsAStandby) {
  first_.standby = true;
  first_.Start();
  second_.Start();
  const auto access = Open({first_.address(), second_.address()});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ((*access)->address(), second_.address());
  EXPECT_EQ(second_.signed_count, 1);
}

TEST_F(AccessTest, SaysWhatEachOfThemSaidAndJoinsWhenOneIsThere) {
  first_.Start();
  first_.Stop();
  second_.standby = true;
  second_.Start();
  const std::vector<std::string> both = {first_.address(), second_.address()};
  const auto in_vain = Open(both);
  EXPECT_TRUE(absl::IsUnavailable(in_vain.status())) << in_vain.status();
  EXPECT_THAT(std::string(Message(in_vain.status())),
              AllOf(HasSubstr(first_.address() + ": Connection refused"),
                    HasSubstr(second_.address() + ": this is the standby of h:7070")));
  second_.standby = false;
  EXPECT_TRUE(Open(both).ok());
}

TEST_F(AccessTest, AnotherAuthorityIsNotPassedOver) {
  const StatusOr<Authority> other = Authority::Make(absl::Now());
  ASSERT_TRUE(other.ok());
  FakeMembers stranger(*other);
  stranger.Start();
  second_.Start();
  EXPECT_TRUE(absl::IsUnauthenticated(Open({stranger.address(), second_.address()}).status()));
  EXPECT_EQ(second_.signed_count, 0);
}

// A member whose certificate another authority has made than the token's joins anew.
TEST_F(AccessTest, AJoinThatFailsLeavesTheOldCredentials) {
  const std::string file = folder_.path() + "/me.pem";
  const StatusOr<Authority> other = Authority::Make(absl::Now());
  ASSERT_TRUE(other.ok());
  FakeMembers stranger(*other);
  stranger.Start();
  ASSERT_TRUE(Open({stranger.address()}, NewTokenFile(*other)).ok());
  const std::string before = ReadFile(file).value();
  first_.drops_replies = true;
  first_.Start();
  EXPECT_TRUE(absl::IsAborted(Open({first_.address()}).status()));
  EXPECT_EQ(ReadFile(file).value(), before);
  // What is there is good without a token.
  EXPECT_TRUE(Open({stranger.address()}, "").ok());
  // The next attempt is with the same key, which the coordinator has signed already.
  const std::string pending = LoadCredentials(file + ".joining").value().key_pem;
  first_.drops_replies = false;
  ASSERT_TRUE(Open({first_.address()}).ok());
  EXPECT_EQ(LoadCredentials(file).value().key_pem, pending);
  EXPECT_FALSE(std::filesystem::exists(file + ".joining"));
}

// A process that died after it kept its credentials leaves its pending key behind.
TEST_F(AccessTest, TheKeyOfAMemberIsNotUsedForAnotherOne) {
  const std::string file = folder_.path() + "/me.pem";
  first_.Start();
  ASSERT_TRUE(Open({first_.address()}).ok());
  const std::string key = LoadCredentials(file).value().key_pem;
  ASSERT_TRUE(StoreCredentials(file + ".joining",
                               {.key_pem = key, .certificate_pem = {}, .authority_pem = {}})
                  .ok());
  const StatusOr<Authority> other = Authority::Make(absl::Now());
  ASSERT_TRUE(other.ok());
  FakeMembers stranger(*other);
  stranger.Start();
  ASSERT_TRUE(Open({stranger.address()}, NewTokenFile(*other)).ok());
  EXPECT_NE(LoadCredentials(file).value().key_pem, key);
}

TEST_F(AccessTest, RenewsWithTheOneThatServes) {
  first_.age = absl::Minutes(50);  // due at once
  first_.Start();
  second_.Start();
  const auto access = Open({first_.address(), second_.address()});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ((*access)->address(), first_.address());
  first_.Stop();
  const uint64_t before = (*access)->generation();
  EXPECT_EQ((*access)->RenewIfDue(absl::ZeroDuration()), absl::OkStatus());
  EXPECT_EQ(second_.signed_count, 1);
  EXPECT_EQ((*access)->address(), second_.address());
  EXPECT_GT((*access)->generation(), before);
}

// While the authority's key is rotated, members learn the new one long before their certificates
// end.
// Certificates of a group's members are short, and their coordinator may be away for longer.
TEST_F(AccessTest, JoinsAgainWhereTheCertificateHasEnded) {
  first_.Start();
  first_.age = absl::Hours(2);
  const auto access = Open({first_.address()}).value();
  EXPECT_EQ(first_.joined_count, 1);
  first_.age = absl::ZeroDuration();
  EXPECT_EQ(access->RenewIfDue(absl::ZeroDuration()), absl::OkStatus());
  EXPECT_EQ(first_.joined_count, 2) << "a certificate that has ended renews nothing";
  EXPECT_EQ(access->RenewIfDue(absl::ZeroDuration()), absl::OkStatus());
  EXPECT_EQ(first_.joined_count, 2);
  EXPECT_EQ(first_.signed_count, 2);
}

TEST_F(AccessTest, LearnsANewAuthority) {
  first_.Start();
  const auto access = Open({first_.address()});
  ASSERT_TRUE(access.ok()) << access.status();
  const StatusOr<Authority> present = Authority::Make(absl::Now());
  ASSERT_TRUE(present.ok());
  const auto call = [&] {
    StubOf<v1::MemberService> stub(*access);
    grpc::ClientContext context;
    v1::ListMembersReply reply;
    EXPECT_TRUE(stub.Get()->ListMembers(&context, v1::ListMembersRequest(), &reply).ok());
    (*access)->NoteAuthority(context);
    EXPECT_EQ((*access)->RenewIfDue(absl::ZeroDuration()), absl::OkStatus());
  };
  call();
  first_.signer = authority_->fingerprint();
  call();
  EXPECT_EQ(first_.signed_count, 1);  // to join
  first_.signer = present->fingerprint();
  first_.authority_pem = present->certificate_pem() + authority_->certificate_pem();
  call();
  EXPECT_EQ(first_.signed_count, 2);
  EXPECT_EQ(LoadCredentials(folder_.path() + "/me.pem")->authority_pem, first_.authority_pem);
  call();
  EXPECT_EQ(first_.signed_count, 2);
  // It fits tokens of either.
  EXPECT_TRUE(Open({first_.address()}, NewTokenFile(*present)).ok());
  EXPECT_TRUE(Open({first_.address()}, NewTokenFile(*authority_)).ok());
  EXPECT_EQ(first_.signed_count, 2);
}

}  // namespace
}  // namespace longhaul
