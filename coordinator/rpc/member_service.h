// MemberService: members (users, admins and workers with a certificate) join, renew certificates,
// are listed and are revoked. Without TLS there are no members, and every call returns
// kFailedPrecondition with this reason.
#pragma once

#include "absl/time/time.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/store/members.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/authority.h"

namespace longhaul::coordinator {

inline constexpr absl::Duration kLongestTokenLife = absl::Hours(24 * 365);
inline constexpr uint32_t kMostTokenUses = 1'000'000;

class MemberServiceImpl : public v1::MemberService::CallbackService {
 public:
  // All pointers must outlive the server. `authority` and `members` are null without TLS.
  // `lifetime`: how long a new certificate is valid.
  MemberServiceImpl(Gate* gate, const Authority* authority, Members* members,
                    absl::Duration lifetime)
      : gate_(gate), authority_(authority), members_(members), lifetime_(lifetime) {}

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

 private:
  Status TakeIn(const v1::JoinRequest& request, v1::JoinReply* reply);
  Status RenewFor(const Caller& caller, const std::string& request_pem, v1::JoinReply* reply);
  StatusOr<JoinToken> MakeToken(const v1::CreateTokenRequest& request);

  Gate* const gate_;
  const Authority* const authority_;
  Members* const members_;
  const absl::Duration lifetime_;
};

}  // namespace longhaul::coordinator
