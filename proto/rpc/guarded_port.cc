#include "proto/rpc/guarded_port.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"

namespace longhaul {

GuardedPort::GuardedPort(const PortSecurity& security, grpc::ServerBuilder* builder)
    : tls_(security.identity.has_value()),
      token_(security.token),
      acceptor_(builder->experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          security.identity ? TlsServer(*security.identity) : PlainServer())) {}

Status GuardedPort::Open(const std::string& address) {
  LH_ASSIGN_OR_RETURN(thread_, EventLoopThread::Start());
  Status status;
  thread_->RunAndWait([&] {
    auto listener = Listener::Create(thread_->loop(), address, [this](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      acceptor_->HandleNewConnection(&connection);
    });
    status = listener.status();
    if (!status.ok()) return;
    listener_ = *std::move(listener);
    address_ = listener_->address();
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
