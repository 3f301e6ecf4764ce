// MemberService: members (users, admins and workers with a certificate) join, renew certificates,
// are listed and are revoked, and admins read the audit log. Without TLS there are no members, and
// every call returns kFailedPrecondition with this reason.
//
// Changes are made on threads of this object, because they wait for the disk and for the other
// coordinator (member_call.h). The other calls are answered at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/work_threads.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/member_call.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/members.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/rotation.h"

namespace longhaul::coordinator {

inline constexpr uint32_t kMostTokenUses = 1'000'000;
// Maximum number of changes of members that wait; further ones are refused.
inline constexpr size_t kMaxMemberCalls = 1024;

class MemberServiceImpl : public v1::MemberService::CallbackService {
 public:
  // All pointers must outlive the server. `authorities` and `members` are null without TLS.
  // `lifetime`: how long a new certificate is valid. `limit`: how long the caller of a change waits
  // at most; tests shorten it.
  MemberServiceImpl(Gate* gate, const Authorities* authorities, Members* members, Audit* audit,
                    absl::Duration lifetime, std::chrono::milliseconds limit = kMemberCallLimit)
      : gate_(gate),
        authorities_(authorities),
        members_(members),
        audit_(audit),
        lifetime_(lifetime),
        limit_(limit) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* Join(Context* context, const v1::JoinRequest* request,
                                 v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Renew(Context* context, const v1::RenewRequest* request,
                                  v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* CreateToken(Context* context, const v1::CreateTokenRequest* request,
                                        v1::CreateTokenReply* reply) override;
  grpc::ServerUnaryReactor* ListMembers(Context* context, const v1::ListMembersRequest* request,
                                        v1::ListMembersReply* reply) override;
  grpc::ServerUnaryReactor* RevokeMember(Context* context, const v1::RevokeMemberRequest* request,
                                         v1::RevokeMemberReply* reply) override;
  grpc::ServerUnaryReactor* ListTokens(Context* context, const v1::ListTokensRequest* request,
                                       v1::ListTokensReply* reply) override;
  grpc::ServerUnaryReactor* RevokeToken(Context* context, const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenReply* reply) override;
  grpc::ServerUnaryReactor* ListAudit(Context* context, const v1::ListAuditRequest* request,
                                      v1::ListAuditReply* reply) override;

 private:
  StatusOr<Member> TakeIn(const v1::JoinRequest& request, v1::JoinReply* reply);
  StatusOr<v1::JoinReply> RenewFor(const Caller& caller, const std::string& request_pem);
  StatusOr<v1::CreateTokenReply> MakeToken(const Caller& caller,
                                           const v1::CreateTokenRequest& request);
  StatusOr<v1::RevokeMemberReply> Revoke(const Caller& caller,
                                         const v1::RevokeMemberRequest& request);
  StatusOr<v1::RevokeTokenReply> RevokeJoinToken(const v1::RevokeTokenRequest& request);
  // Has `work` run on one of the threads. Parameters: as of MemberCall::Start.
  template <class Reply>
  grpc::ServerUnaryReactor* Later(const std::string& key, Reply* reply,
                                  std::function<StatusOr<Reply>()> work, bool refuses_late = false);

  Gate* const gate_;
  const Authorities* const authorities_;
  Members* const members_;
  Audit* const audit_;
  const absl::Duration lifetime_;
  const std::chrono::milliseconds limit_;
  std::atomic<size_t> waiting_{0};
  WorkThreads threads_{2};  // last: destroyed before what its work uses
};

}  // namespace longhaul::coordinator
