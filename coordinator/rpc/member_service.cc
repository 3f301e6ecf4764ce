#include "coordinator/rpc/member_service.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/peer_log.h"
#include "coordinator/rpc/intake.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/rpc/stored_reply.h"
#include "proto/identity/certificate.h"
#include "proto/rpc/auth.h"

namespace longhaul::coordinator {
namespace {

using Unary = grpc::ServerUnaryReactor;

Status NoMembers() {
  return absl::FailedPreconditionError(
      "this coordinator was started with --insecure: it has one token for everybody, and no "
      "members");
}

void LogRefusal(const std::string& address, const Status& status) {
  LogAboutPeer(LogLevel::kWarn, address,
               fmt::format("a call from {} was refused: {}", address, Message(status)));
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
                      authorities_->present.Sign(request.request_pem(), member, now,
                                                 members_->LifeFor(member.name, lifetime_)));
  reply->set_authority_pem(authorities_->Trusted(now));
  LogInfo("{} {} has joined", ToString(member.role), member.name);
  return member;
}

template <class Reply>
Unary* MemberServiceImpl::Later(const std::string& key, Reply* reply,
                                std::function<StatusOr<Reply>()> work, bool refuses_late) {
  if (++waiting_ > kMaxMemberCalls) {
    --waiting_;
    return FinishNow<Unary>(
        ResourceExhausted("{} changes of members wait already; try again later", kMaxMemberCalls));
  }
  // Counted until its work has run or was dropped.
  const auto counted = std::shared_ptr<void>(nullptr, [this](void*) { --waiting_; });
  return MemberCall<Reply>::Start(
      &threads_, key, reply, [counted, work = std::move(work)] { return work(); }, refuses_late,
      limit_);
}

Unary* MemberServiceImpl::Join(Context* context, const v1::JoinRequest* request,
                               v1::JoinReply* reply) {
  const auto join = [this, request = *request,
                     address = PeerHost(*context)]() -> StatusOr<v1::JoinReply> {
    v1::JoinReply joined;
    const StatusOr<Member> member = TakeIn(request, &joined);
    if (member.ok()) {
      gate_->Note(Caller{.member = *member}, address, "join", member->worker_id, absl::OkStatus());
      return joined;
    }
    gate_->NoteRefusal(address, nullptr, "join", request.name(), member.status());
    LogRefusal(address, member.status());
    return member.status();
  };
  return Later<v1::JoinReply>(PeerHost(*context), reply, join, /*refuses_late=*/true);
}

StatusOr<v1::JoinReply> MemberServiceImpl::RenewFor(const Caller& caller,
                                                    const std::string& request_pem) {
  if (members_ == nullptr) return NoMembers();
  LH_ASSIGN_OR_RETURN(const std::string key, RequestedKey(request_pem));
  if (key != caller.key_sha256) {
    return InvalidArgument(
        "expected a request for the key that {} has, got one for another key; whoever "
        "wants another joins again with a join token",
        caller.member->name);
  }
  const absl::Time now = absl::Now();
  const absl::Duration life = members_->LifeFor(caller.member->name, lifetime_);
  v1::JoinReply reply;
  LH_ASSIGN_OR_RETURN(*reply.mutable_certificate_pem(),
                      authorities_->present.Sign(request_pem, *caller.member, now, life));
  reply.set_authority_pem(authorities_->Trusted(now));
  LH_RETURN_IF_ERROR(members_->Renew(caller.member->name, now + life));
  return reply;
}

Unary* MemberServiceImpl::Renew(Context* context, const v1::RenewRequest* request,
                                v1::JoinReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kRenew, [&](const Caller& caller) -> StatusOr<Unary*> {
    if (!caller.member) return NoMembers();
    return Later<v1::JoinReply>(caller.member->name, reply,
                                [this, caller, request_pem = request->request_pem()] {
                                  return RenewFor(caller, request_pem);
                                });
  });
}

StatusOr<v1::CreateTokenReply> MemberServiceImpl::MakeToken(const Caller& caller,
                                                            const v1::CreateTokenRequest& request) {
  if (members_ == nullptr) return NoMembers();
  LH_RETURN_IF_ERROR(AdmitRequestId(request.request_id()));
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(request.role()));
  const absl::Duration life =
      request.seconds() == 0 ? kDefaultTokenLife : absl::Seconds(request.seconds());
  const bool of_group = request.members() > 0;
  if (of_group && (request.uses() > 0 || request.members() > kMostTokenUses)) {
    return InvalidArgument(
        "expected 1 to {} members at a time and no number of uses, got {} members and {} uses",
        kMostTokenUses, request.members(), request.uses());
  }
  if (!of_group && (request.uses() == 0 || request.uses() > kMostTokenUses)) {
    return InvalidArgument("expected 1 to {} uses of a join token", kMostTokenUses);
  }
  const absl::Time now = absl::Now();
  const JoinToken token = NewJoinToken(role, authorities_->Shown(now).fingerprint());
  Once once;
  if (!request.request_id().empty()) {
    once = {.owner = caller.member->name,
            .id = request.request_id(),
            .asked_sha256 = Sha256WithoutId(request)};
  }
  Written written;
  bool repeated = false;
  LH_RETURN_IF_ERROR(members_->AddToken(token, of_group ? kAnyNumber : int64_t{request.uses()},
                                        now + life, now, &written, once, &repeated,
                                        request.members()));
  v1::CreateTokenReply reply;
  reply.mutable_stored()->set_repeated(repeated);
  reply.set_token(ToString(token));
  FillStored(written, reply.mutable_stored());
  return reply;
}

Unary* MemberServiceImpl::CreateToken(Context* context, const v1::CreateTokenRequest* request,
                                      v1::CreateTokenReply* reply) {
  return Serve<Unary>(
      gate_, *context, Call::kCreateToken, [&](const Caller& caller) -> StatusOr<Unary*> {
        if (!caller.member) return NoMembers();
        return Later<v1::CreateTokenReply>(
            caller.member->name, reply,
            [this, caller, request = *request, address = PeerHost(*context)] {
              StatusOr<v1::CreateTokenReply> made = MakeToken(caller, request);
              gate_->Note(
                  caller, address, "token create",
                  fmt::format("role {}, {} {}, {} s", request.role(),
                              request.members() > 0 ? request.members() : request.uses(),
                              request.members() > 0 ? "members" : "uses", request.seconds()),
                  made.status());
              return made;
            });
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

StatusOr<v1::RevokeMemberReply> MemberServiceImpl::Revoke(const Caller& caller,
                                                          const v1::RevokeMemberRequest& request) {
  LH_RETURN_IF_ERROR(AdmitRequestId(request.request_id()));
  const std::string& name = request.name();
  Written written;
  const Status revoked = members_->Revoke(name, absl::Now(), &written);
  if (absl::IsFailedPrecondition(revoked) && !request.request_id().empty()) {
    // It is as this call wants it, most likely by an earlier try.
    v1::RevokeMemberReply done;
    done.mutable_stored()->set_repeated(true);
    return done;
  }
  LH_RETURN_IF_ERROR(revoked);
  LogInfo("{} was revoked by {}", name, caller.member->name);
  // After the revocation is stored, as Gate::Admit needs.
  gate_->Cut(name);
  v1::RevokeMemberReply reply;
  FillStored(written, reply.mutable_stored());
  return reply;
}

Unary* MemberServiceImpl::RevokeMember(Context* context, const v1::RevokeMemberRequest* request,
                                       v1::RevokeMemberReply* reply) {
  return Serve<Unary>(
      gate_, *context, Call::kRevokeMember, [&](const Caller& caller) -> StatusOr<Unary*> {
        if (members_ == nullptr || !caller.member) return NoMembers();
        return Later<v1::RevokeMemberReply>(
            caller.member->name, reply,
            [this, caller, request = *request, address = PeerHost(*context)] {
              StatusOr<v1::RevokeMemberReply> revoked = Revoke(caller, request);
              gate_->Note(caller, address, "revoke", request.name(), revoked.status());
              return revoked;
            });
      });
}

Unary* MemberServiceImpl::ListTokens(Context* context, const v1::ListTokensRequest*,
                                     v1::ListTokensReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kListTokens,
                      [&](const Caller& caller) -> StatusOr<Unary*> {
                        if (members_ == nullptr || !caller.member) return NoMembers();
                        return Later<v1::ListTokensReply>(
                            caller.member->name, reply, [this]() -> StatusOr<v1::ListTokensReply> {
                              LH_ASSIGN_OR_RETURN(std::vector<v1::TokenStatus> tokens,
                                                  members_->ListTokens(absl::Now()));
                              v1::ListTokensReply listed;
                              for (v1::TokenStatus& token : tokens)
                                *listed.add_tokens() = std::move(token);
                              return listed;
                            });
                      });
}

StatusOr<v1::RevokeTokenReply> MemberServiceImpl::RevokeJoinToken(
    const v1::RevokeTokenRequest& request) {
  LH_RETURN_IF_ERROR(AdmitRequestId(request.request_id()));
  Written written;
  LH_RETURN_IF_ERROR(members_->RevokeToken(request.id(), absl::Now(), &written));
  v1::RevokeTokenReply reply;
  FillStored(written, reply.mutable_stored());
  return reply;
}

Unary* MemberServiceImpl::RevokeToken(Context* context, const v1::RevokeTokenRequest* request,
                                      v1::RevokeTokenReply* reply) {
  return Serve<Unary>(
      gate_, *context, Call::kRevokeToken, [&](const Caller& caller) -> StatusOr<Unary*> {
        if (members_ == nullptr || !caller.member) return NoMembers();
        return Later<v1::RevokeTokenReply>(
            caller.member->name, reply,
            [this, caller, request = *request, address = PeerHost(*context)] {
              StatusOr<v1::RevokeTokenReply> revoked = RevokeJoinToken(request);
              gate_->Note(caller, address, "token revoke", request.id(), revoked.status());
              return revoked;
            });
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
