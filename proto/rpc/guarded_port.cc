#include "proto/rpc/guarded_port.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"

namespace longhaul {

namespace {

std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddAcceptor(
    grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
}

// How soon a change of the wall clock is noticed.
constexpr absl::Duration kLongestWait = absl::Minutes(1);

}  // namespace

StatusOr<PortSecurity> SecurityOf(const Authorities& authorities, absl::Time now) {
  PortSecurity security;
  LH_ASSIGN_OR_RETURN(security.identity, authorities.MakeServerIdentity(now));
  if (authorities.IsRotating(now)) {
    security.next_from = authorities.old_until;
    LH_ASSIGN_OR_RETURN(security.next, authorities.MakeServerIdentity(security.next_from));
  }
  return security;
}

GuardedPort::GuardedPort(const PortSecurity& security, grpc::ServerBuilder* builder)
    : tls_(security.identity.has_value()),
      token_(security.token),
      acceptor_(
          AddAcceptor(builder, security.identity ? TlsServer(*security.identity) : PlainServer())),
      next_acceptor_(security.next ? AddAcceptor(builder, TlsServer(*security.next)) : nullptr),
      next_from_(security.next_from) {}

void GuardedPort::TurnInTime() {
  if (listener_ == nullptr) return;
  if (const absl::Duration left = next_from_ - absl::Now(); left > absl::ZeroDuration()) {
    thread_->loop()->AddTimer(Now() + std::min(left, kLongestWait), [this] { TurnInTime(); });
    return;
  }
  turned_ = true;
  listener_->CutAll();
}

Status GuardedPort::Open(const std::string& address) {
  LH_ASSIGN_OR_RETURN(thread_, EventLoopThread::Start("connections"));
  Status status;
  thread_->RunAndWait([&] {
    auto listener = Listener::Create(thread_->loop(), address, [this](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      (turned_ ? next_acceptor_ : acceptor_)->HandleNewConnection(&connection);
    });
    status = listener.status();
    if (!status.ok()) return;
    listener_ = *std::move(listener);
    address_ = listener_->address();
    listener_->WhenGone([this](const std::string& peer) { connected_.Forget(peer); });
    if (next_acceptor_ != nullptr) TurnInTime();
  });
  return status;
}

void GuardedPort::Close() {
  if (thread_ == nullptr) return;
  thread_->RunAndWait([this] {
    if (listener_ != nullptr) listener_->StopListening();
  });
}

GuardedPort::~GuardedPort() {
  if (thread_ != nullptr) thread_->RunAndWait([this] { listener_.reset(); });
}

StatusOr<Caller> GuardedPort::Identify(const grpc::ServerContextBase& context) const {
  if (tls_) return CallerOf(context, absl::Now());
  LH_RETURN_IF_ERROR(CheckToken(context, token_));
  return Caller();
}

void GuardedPort::Connected::Forget(const std::string& peer) {
  const std::lock_guard lock(mutex);
  const auto known = by_peer.find(peer);
  if (known == by_peer.end()) return;
  const auto own = of_member.find(known->second);
  if (own != of_member.end() && --own->second == 0) of_member.erase(own);
  by_peer.erase(known);
}

Status GuardedPort::MayConnect(const grpc::ServerContextBase& context, const Caller& caller,
                               size_t most) {
  if (!caller.member || most == 0) return absl::OkStatus();
  const std::string peer = PeerText(context.peer()), &member = caller.member->name;
  const std::lock_guard lock(connected_.mutex);
  if (connected_.by_peer.contains(peer)) return absl::OkStatus();
  size_t& own = connected_.of_member[member];
  if (own >= most) {
    return ResourceExhausted(
        "{} has {} connections to this coordinator, as many as a member may; end some of the "
        "programs that use them",
        member, own);
  }
  ++own;
  connected_.by_peer[peer] = member;
  return absl::OkStatus();
}

void GuardedPort::LetIn(const grpc::ServerContextBase& context, const Caller& caller) {
  std::optional<MonoTime> until;
  if (caller.until != absl::InfiniteFuture()) until = Now() + (caller.until - absl::Now());
  thread_->loop()->Post([this, peer = PeerText(context.peer()), until,
                         member = caller.member ? caller.member->name : std::string()] {
    if (listener_ != nullptr) listener_->Admit(peer, member, until);
  });
}

void GuardedPort::Cut(const std::string& member) {
  thread_->loop()->Post([this, member] {
    if (listener_ != nullptr) listener_->CutMember(member);
  });
}

}  // namespace longhaul
