#include "coordinator/rpc/member_service.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "coordinator/rpc/serve.h"
#include "proto/identity/certificate.h"

namespace longhaul::coordinator {
namespace {

using Unary = grpc::ServerUnaryReactor;

Status NoMembers() {
  return absl::FailedPreconditionError(
      "this coordinator was started with --insecure: it has one token for everybody, and no "
      "members");
}

}  // namespace

Status MemberServiceImpl::TakeIn(const v1::JoinRequest& request, v1::JoinReply* reply) {
  if (members_ == nullptr) return NoMembers();
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(request.role()));
  LH_ASSIGN_OR_RETURN(std::string key, RequestedKey(request.request_pem()));
  const JoinWish wish{.role = role,
                      .name = request.name(),
                      .worker_id = request.worker_id(),
                      .key_sha256 = std::move(key)};
  const absl::Time now = absl::Now();
  LH_ASSIGN_OR_RETURN(const Member member,
                      members_->Join(request.secret(), wish, now, now + lifetime_));
  LH_ASSIGN_OR_RETURN(*reply->mutable_certificate_pem(),
                      authority_->Sign(request.request_pem(), member, now, lifetime_));
  LogInfo("{} {} has joined", ToString(member.role), member.name);
  return absl::OkStatus();
}

Unary* MemberServiceImpl::Join(Context* context, const v1::JoinRequest* request,
                               v1::JoinReply* reply) {
  const Status status = TakeIn(*request, reply);
  // Late, so that nobody tries secrets as fast as the network carries them.
  if (!status.ok()) return RefuseCaller<Unary>(*context, status);
  return FinishNow<Unary>(status);
}

Status MemberServiceImpl::RenewFor(const Caller& caller, const std::string& request_pem,
                                   v1::JoinReply* reply) {
  if (members_ == nullptr) return NoMembers();
  LH_ASSIGN_OR_RETURN(const std::string key, RequestedKey(request_pem));
  if (key != caller.key_sha256) {
    return InvalidArgument(
        "expected a request for the key that {} has, got one for another key; whoever "
        "wants another joins again with a join token",
        caller.member->name);
  }
  const absl::Time now = absl::Now();
  LH_ASSIGN_OR_RETURN(*reply->mutable_certificate_pem(),
                      authority_->Sign(request_pem, *caller.member, now, lifetime_));
  return members_->Renew(caller.member->name, now + lifetime_);
}

Unary* MemberServiceImpl::Renew(Context* context, const v1::RenewRequest* request,
                                v1::JoinReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kRenew, [&](const Caller& caller) {
    return RenewFor(caller, request->request_pem(), reply);
  });
}

StatusOr<JoinToken> MemberServiceImpl::MakeToken(const v1::CreateTokenRequest& request) {
  if (members_ == nullptr) return NoMembers();
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(request.role()));
  const absl::Duration life = absl::Seconds(request.seconds());
  if (life <= absl::ZeroDuration() || life > kLongestTokenLife) {
    return absl::InvalidArgumentError("expected a time of 1 s to a year for a join token");
  }
  if (request.uses() == 0 || request.uses() > kMostTokenUses) {
    return InvalidArgument("expected 1 to {} uses of a join token", kMostTokenUses);
  }
  JoinToken token = NewJoinToken(role, authority_->fingerprint());
  const absl::Time now = absl::Now();
  LH_RETURN_IF_ERROR(members_->AddToken(token, request.uses(), now + life, now));
  return token;
}

Unary* MemberServiceImpl::CreateToken(Context* context, const v1::CreateTokenRequest* request,
                                      v1::CreateTokenReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kCreateToken, [&](const Caller&) -> Status {
    LH_ASSIGN_OR_RETURN(const JoinToken token, MakeToken(*request));
    reply->set_token(ToString(token));
    return absl::OkStatus();
  });
}

Unary* MemberServiceImpl::ListMembers(Context* context, const v1::ListMembersRequest*,
                                      v1::ListMembersReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kListMembers, [&](const Caller&) -> Status {
    if (members_ == nullptr) return NoMembers();
    for (v1::MemberStatus& member : members_->List()) *reply->add_members() = std::move(member);
    return absl::OkStatus();
  });
}

Unary* MemberServiceImpl::RevokeMember(Context* context, const v1::RevokeMemberRequest* request,
                                       v1::RevokeMemberReply*) {
  return Serve<Unary>(gate_, *context, Call::kRevokeMember, [&](const Caller& caller) -> Status {
    if (members_ == nullptr) return NoMembers();
    LH_RETURN_IF_ERROR(members_->Revoke(request->name(), absl::Now()));
    LogInfo("{} was revoked by {}", request->name(), caller.member->name);
    gate_->Cut(request->name());
    return absl::OkStatus();
  });
}

}  // namespace longhaul::coordinator
