// Who is let in by a coordinator with TLS, over real connections.
#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "base/file.h"
#include "coordinator/rpc/server.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
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

}  // namespace
}  // namespace longhaul::coordinator
