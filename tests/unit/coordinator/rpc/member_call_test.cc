// Calls that change the list of members, while the store waits for the disk or for the other
// coordinator.
#include "coordinator/rpc/member_call.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/time/clock.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/member_service.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/members.h"
#include "coordinator/store/store.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/certificate.h"
#include "proto/identity/join_token.h"
#include "proto/identity/rotation.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/guarded_port.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

// Secures changes, but not while it is told to hold them.
class Stalling : public Replicator {
 public:
  uint64_t term() const override { return 1; }
  StatusOr<Held> Secure(const v1::StoreChange&) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !holds_; });
    return Held::kHere;
  }
  void Committed(const History&) override {}
  void Hold(bool holds) {
    const std::lock_guard lock(mutex_);
    holds_ = holds;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
};

class MemberCallTest : public ::testing::Test {
 protected:
  MemberCallTest() {
    store_->journal().SetReplicator(&replicator_);
    members_ = Members::Open(folder_.path(), &store_->journal()).value();
    audit_ = Audit::Open(folder_.path(), &store_->journal()).value();
    bool made = false;
    authorities_ = LoadOrMakeAuthorities(folder_.path(), absl::Now(), &made).value();
    token_ = NewJoinToken(Role::kUser, authorities_->present.fingerprint());
    EXPECT_TRUE(
        members_->AddToken(token_, /*uses=*/1, absl::Now() + absl::Hours(1), absl::Now()).ok());
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    port_.emplace(SecurityOf(*authorities_, absl::Now()).value(), &builder);
    gate_.emplace(&*port_, members_.get(), nullptr, nullptr, audit_.get(), "");
    service_.emplace(&*gate_, &*authorities_, members_.get(), audit_.get(), absl::Hours(1),
                     std::chrono::milliseconds(50));
    builder.RegisterService(&*service_);
    server_ = builder.BuildAndStart();
    EXPECT_TRUE(port_->Open("127.0.0.1:0").ok());
  }
  ~MemberCallTest() override {
    replicator_.Hold(false);
    port_->Close();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  grpc::Status Join() {
    const Credentials stranger{.key_pem = key_,
                               .certificate_pem = {},
                               .authority_pem = authorities_->Trusted(absl::Now())};
    const auto stub = v1::MemberService::NewStub(MakeChannel(port_->address(), stranger));
    v1::JoinRequest request;
    request.set_request_pem(MakeRequest(key_).value());
    request.set_secret(token_.secret);
    request.set_role("user");
    request.set_name("bob");
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::JoinReply reply;
    return stub->Join(&context, request, &reply);
  }

  const TempDir folder_;
  const std::string key_ = MakeKey().value();
  Stalling replicator_;
  std::unique_ptr<Store> store_ = Store::Open(folder_.path()).value();
  std::unique_ptr<Members> members_;
  std::unique_ptr<Audit> audit_;
  std::optional<Authorities> authorities_;
  JoinToken token_;
  std::optional<GuardedPort> port_;
  std::optional<Gate> gate_;
  std::optional<MemberServiceImpl> service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(MemberCallTest, TheCallerHearsInTimeThatTheStoreHangs) {
  replicator_.Hold(true);
  const grpc::Status late = Join();
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(late.error_message(), HasSubstr("whether it is stored is not known yet"));
  // Who only looks does not wait.
  EXPECT_TRUE(members_->List().empty());
  // The work goes on, and the same member is taken in once, although the token has one use.
  replicator_.Hold(false);
  grpc::Status again = Join();
  while (again.error_code() == grpc::StatusCode::UNAVAILABLE) again = Join();
  EXPECT_TRUE(again.ok()) << again.error_message();
  EXPECT_EQ(members_->List().size(), 1u);
}

}  // namespace
}  // namespace longhaul::coordinator
