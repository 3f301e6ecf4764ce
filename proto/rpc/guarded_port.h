// The port of a gRPC server whose callers have to be known. Connections come in through a Listener
// (listener.h). A connection is a stranger until LetIn is called for a call of it.
//
//   grpc::ServerBuilder builder;
//   GuardedPort port({.identity = identity}, &builder);
//   ...services that ask port.Identify(*context) first in every call, and then port.LetIn...
//   server = builder.BuildAndStart();
//   LH_RETURN_IF_ERROR(port.Open("0.0.0.0:7070"));
//
// The first call of a connection has to fit into kMaxStrangerBytes, with the handshake of TLS and
// all that is streamed before its first answer: a unary handler runs only when the whole request is
// there. Clients that send more make a small call first.
#ifndef LONGHAUL_PROTO_RPC_GUARDED_PORT_H_
#define LONGHAUL_PROTO_RPC_GUARDED_PORT_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/status.h"
#include "proto/identity/authority.h"
#include "proto/rpc/caller.h"
#include "proto/rpc/listener.h"

namespace longhaul {

// What callers prove themselves with.
struct PortSecurity {
  std::optional<ServerIdentity> identity;  // TLS and certificates; nullopt: no encryption
  std::string token;  // without TLS: that of every caller (auth.h); empty: everybody is let in
};

class GuardedPort {
 public:
  // `builder` is used during this call only.
  GuardedPort(const PortSecurity& security, grpc::ServerBuilder* builder);
  // After the server has started, once. kInvalidArgument, kAlreadyExists (the port is in use),
  // kFailedPrecondition (not an address of this host).
  Status Open(const std::string& address);
  // Call before the server shuts down. Takes no new connections; existing ones stay.
  void Close();
  // After the server has shut down.
  ~GuardedPort();
  GuardedPort(const GuardedPort&) = delete;
  GuardedPort& operator=(const GuardedPort&) = delete;

  // With the real port where 0 was asked for. After Open.
  const std::string& address() const { return address_; }

  // ---- Thread-safe
  // kUnauthenticated with a sentence where the caller is not known.
  StatusOr<Caller> Identify(const grpc::ServerContextBase& context) const;
  // The connection of this call is no stranger's any more. It is cut when the certificate ends.
  void LetIn(const grpc::ServerContextBase& context, const Caller& caller);
  // Cuts every connection of a member, with all calls that are under way on it.
  void Cut(const std::string& member);

 private:
  const bool tls_;
  const std::string token_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::shared_ptr<EventLoopThread> thread_;  // from Open
  std::unique_ptr<Listener> listener_;       // on the loop
  std::string address_;
};

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_RPC_GUARDED_PORT_H_
