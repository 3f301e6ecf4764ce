#include "proto/rpc/guarded_port.h"

#include <utility>

#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"

namespace longhaul {

GuardedPort::GuardedPort(std::string token, grpc::ServerBuilder* builder)
    : token_(std::move(token)),
      acceptor_(builder->experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          ServerCredentials())) {}

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

Status GuardedPort::Check(const grpc::CallbackServerContext& context) {
  Status status = CheckToken(context, token_);
  if (status.ok()) {
    thread_->loop()->Post([this, peer = PeerText(context.peer())] {
      if (listener_ != nullptr) listener_->Admit(peer);
    });
  }
  return status;
}

}  // namespace longhaul
