// Who is let in by a coordinator with TLS, over real connections.
#include "coordinator/rpc/gate.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/file.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/rpc/server.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/members.h"
#include "coordinator/store/store.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/authority.h"
#include "proto/identity/certificate.h"
#include "proto/identity/credentials.h"
#include "proto/identity/join_token.h"
#include "proto/identity/rotation.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/guarded_port.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

// Its first member is an admin, with what its token in the state directory makes of him.
class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    server_ = CoordinatorServer::Start({.listen = "127.0.0.1:0", .state_dir = State()}).value();
    EXPECT_TRUE(Access::Open({.addresses = {server_->address()},
                              .token_file = State() + "/token",
                              .credentials_file = CredentialsFile(),
                              .name = "ann"},
                             absl::Seconds(30))
                    .ok());
    own_ = LoadCredentials(CredentialsFile()).value();
  }
  std::string State() const { return folder_.path() + "/state"; }
  std::string CredentialsFile() const { return folder_.path() + "/ann.pem"; }
  // A certificate for ann and this key, as whoever has the authority's key can make.
  Credentials Forged(const std::string& key) const {
    const Authority authority =
        Authority::FromPem(ReadFile(State() + "/authority.pem").value()).value();
    Credentials forged = own_;
    forged.key_pem = key;
    forged.certificate_pem =
        authority
            .Sign(MakeRequest(key).value(), ReadMemberCertificate(own_.certificate_pem)->member,
                  absl::Now(), absl::Hours(1))
            .value();
    return forged;
  }
  grpc::Status Info(const Credentials& credentials) const {
    const auto stub = v1::ControlService::NewStub(MakeChannel(server_->address(), credentials));
    grpc::ClientContext context;
    v1::InfoReply reply;
    return stub->Info(&context, v1::InfoRequest(), &reply);
  }
  // Leaves `credentials` with the new certificate.
  grpc::Status Renew(Credentials* credentials, const std::string& key) const {
    const auto stub = v1::MemberService::NewStub(MakeChannel(server_->address(), *credentials));
    grpc::ClientContext context;
    v1::RenewRequest request;
    request.set_request_pem(MakeRequest(key).value());
    v1::JoinReply reply;
    grpc::Status status = stub->Renew(&context, request, &reply);
    if (status.ok()) credentials->certificate_pem = reply.certificate_pem();
    return status;
  }

  const TempDir folder_;
  std::unique_ptr<CoordinatorServer> server_;
  Credentials own_;
};

TEST_F(GateTest, ACertificateForAnotherKeyIsNobodys) {
  EXPECT_TRUE(Info(own_).ok());
  const grpc::Status forged = Info(Forged(MakeKey().value()));
  EXPECT_EQ(forged.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(forged.error_message(), HasSubstr("for another key"));
  EXPECT_TRUE(Info(Forged(own_.key_pem)).ok());  // the key is what counts
}

TEST_F(GateTest, RenewalKeepsTheKey) {
  Credentials renewed = own_;
  const grpc::Status other = Renew(&renewed, MakeKey().value());
  EXPECT_EQ(other.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(other.error_message(), HasSubstr("the key that ann has"));
  ASSERT_TRUE(Renew(&renewed, own_.key_pem).ok());
  EXPECT_TRUE(Info(renewed).ok());
  EXPECT_TRUE(Info(own_).ok());  // connections of before go on
}

// ---- A revocation between the check of a call and its admission

// A coordinator's port and gate, and one call, WatchRun, which never ends by itself.
class RaceTest : public ::testing::Test {
 protected:
  class Endless : public v1::ControlService::CallbackService {
   public:
    explicit Endless(RaceTest* test) : test_(test) {}
    grpc::ServerWriteReactor<v1::RunStatus>* WatchRun(grpc::CallbackServerContext* context,
                                                      const v1::RunRequest*) override {
      using Reactor = grpc::ServerWriteReactor<v1::RunStatus>;
      class Open : public Reactor {
       public:
        Open() { StartSendInitialMetadata(); }
        void OnCancel() override { Finish(grpc::Status::CANCELLED); }
        void OnDone() override { delete this; }
      };
      return Serve<Reactor>(&*test_->gate_, *context, Call::kWatchRun,
                            [](const Caller&) -> StatusOr<Reactor*> { return new Open; });
    }

   private:
    RaceTest* const test_;
  };

  RaceTest() {
    const std::string folder = folder_.path();
    store_ = Store::Open(folder).value();
    members_ = Members::Open(folder, &store_->journal()).value();
    audit_ = Audit::Open(folder, &store_->journal()).value();
    const absl::Time now = absl::Now();
    bool made = false;
    const Authorities authorities = LoadOrMakeAuthorities(folder, now, &made).value();
    const JoinToken token = NewJoinToken(Role::kUser, authorities.present.fingerprint());
    EXPECT_TRUE(members_->AddToken(token, 1, now + absl::Hours(1), now).ok());
    bob_.key_pem = MakeKey().value();
    const std::string request = MakeRequest(bob_.key_pem).value();
    const Member member = members_
                              ->Join(token.secret,
                                     {.role = Role::kUser,
                                      .name = "bob",
                                      .worker_id = "",
                                      .key_sha256 = RequestedKey(request).value()},
                                     now, now + absl::Hours(1))
                              .value();
    bob_.certificate_pem = authorities.present.Sign(request, member, now, absl::Hours(1)).value();
    bob_.authority_pem = authorities.Trusted(now);
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    port_.emplace(SecurityOf(authorities, now).value(), &builder);
    gate_.emplace(&*port_, members_.get(), nullptr, nullptr, audit_.get(), "");
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_TRUE(port_->Open("127.0.0.1:0").ok());
  }
  ~RaceTest() override {
    port_->Close();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  void Revoke() {
    EXPECT_TRUE(members_->Revoke("bob", absl::Now()).ok());
    gate_->Cut("bob");
  }
  // How a call of bob's ends, once `opened` has run after its beginning.
  grpc::Status Watch(const std::function<void()>& opened = {}) {
    const auto stub = v1::ControlService::NewStub(MakeChannel(port_->address(), bob_));
    grpc::ClientContext context;
    const auto reader = stub->WatchRun(&context, v1::RunRequest());
    reader->WaitForInitialMetadata();
    if (opened) opened();
    v1::RunStatus status;
    EXPECT_FALSE(reader->Read(&status));
    return reader->Finish();
  }

  const TempDir folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Members> members_;
  std::unique_ptr<Audit> audit_;
  Credentials bob_;
  std::optional<GuardedPort> port_;
  std::optional<Gate> gate_;
  Endless service_{this};
  std::unique_ptr<grpc::Server> server_;
};

// The revocation has cut the connections of bob before this one was known as his.
TEST_F(RaceTest, ARevocationAfterTheFirstLookEndsTheCall) {
  gate_->BeforeLetIn([this] { Revoke(); });
  const grpc::Status status = Watch();
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
              status.error_code() == grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
  v1::ListAuditRequest request;
  request.set_member("bob");
  // The cut may be seen before the refusal is recorded.
  const Deadline patience = Deadline::After(absl::Seconds(20));
  auto entries = audit_->List(request);
  while (entries->empty() && patience.Remaining() > absl::ZeroDuration()) {
    entries = audit_->List(request);
  }
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_THAT(entries->front().outcome(), HasSubstr("was revoked"));
}

TEST_F(RaceTest, ARevocationAfterTheAdmissionEndsTheStream) {
  EXPECT_EQ(Watch([this] { Revoke(); }).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace longhaul::coordinator
