#include "coordinator/rpc/member_service.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

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

StatusOr<Member> MemberServiceImpl::TakeIn(const v1::JoinRequest& request, v1::JoinReply* reply) {
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
                      authorities_->present.Sign(request.request_pem(), member, now, lifetime_));
  reply->set_authority_pem(authorities_->Trusted(now));
  LogInfo("{} {} has joined", ToString(member.role), member.name);
  return member;
}

Unary* MemberServiceImpl::Join(Context* context, const v1::JoinRequest* request,
                               v1::JoinReply* reply) {
  const StatusOr<Member> member = TakeIn(*request, reply);
  if (member.ok()) {
    gate_->Note(Caller{.member = *member}, *context, "join", member->worker_id, absl::OkStatus());
    return FinishNow<Unary>(absl::OkStatus());
  }
  gate_->NoteRefusal(*context, nullptr, "join", request->name(), member.status());
  // Late, so that nobody tries secrets as fast as the network carries them.
  return RefuseCaller<Unary>(*context, member.status());
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
                      authorities_->present.Sign(request_pem, *caller.member, now, lifetime_));
  reply->set_authority_pem(authorities_->Trusted(now));
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
  const absl::Duration life =
      request.seconds() == 0 ? kDefaultTokenLife : absl::Seconds(request.seconds());
  if (request.uses() == 0 || request.uses() > kMostTokenUses) {
    return InvalidArgument("expected 1 to {} uses of a join token", kMostTokenUses);
  }
  const absl::Time now = absl::Now();
  JoinToken token = NewJoinToken(role, authorities_->Shown(now).fingerprint());
  LH_RETURN_IF_ERROR(members_->AddToken(token, request.uses(), now + life, now));
  return token;
}

Unary* MemberServiceImpl::CreateToken(Context* context, const v1::CreateTokenRequest* request,
                                      v1::CreateTokenReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kCreateToken, [&](const Caller& caller) -> Status {
    const StatusOr<JoinToken> token = MakeToken(*request);
    gate_->Note(
        caller, *context, "token create",
        fmt::format("role {}, {} uses, {} s", request->role(), request->uses(), request->seconds()),
        token.status());
    if (token.ok()) reply->set_token(ToString(*token));
    return token.status();
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
    const Status revoked = members_->Revoke(request->name(), absl::Now());
    gate_->Note(caller, *context, "revoke", request->name(), revoked);
    LH_RETURN_IF_ERROR(revoked);
    LogInfo("{} was revoked by {}", request->name(), caller.member->name);
    // After the revocation is stored, as Gate::Admit needs.
    gate_->Cut(request->name());
    return absl::OkStatus();
  });
}

Unary* MemberServiceImpl::ListAudit(Context* context, const v1::ListAuditRequest* request,
                                    v1::ListAuditReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kListAudit, [&](const Caller&) -> Status {
    LH_ASSIGN_OR_RETURN(std::vector<v1::AuditEntry> entries, audit_->List(*request));
    for (v1::AuditEntry& entry : entries) *reply->add_entries() = std::move(entry);
    return absl::OkStatus();
  });
}

}  // namespace longhaul::coordinator
