// The port of a gRPC server that must know its callers. A Listener (listener.h) accepts the
// connections. A connection is a stranger until LetIn is called for one of its calls.
//
//   grpc::ServerBuilder builder;
//   GuardedPort port({.identity = identity}, &builder);
//   ...services that ask port.Identify(*context) first in every call, and then port.LetIn...
//   server = builder.BuildAndStart();
//   LH_RETURN_IF_ERROR(port.Open("0.0.0.0:7070"));
//
// A connection's first call must fit into kMaxStrangerBytes, together with the TLS handshake and
// everything streamed before its first answer, because a unary handler only runs when the whole
// request has arrived. Clients with larger calls make a small call first.
#pragma once

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

// How callers prove who they are.
struct PortSecurity {
  std::optional<ServerIdentity> identity;  // TLS and certificates; nullopt: no encryption
  std::string token;  // without TLS: every caller's token (auth.h); empty: all are admitted
};

class GuardedPort {
 public:
  // `builder` is used during this call only.
  GuardedPort(const PortSecurity& security, grpc::ServerBuilder* builder);
  // Begins to listen at "host:port". Call it once, after the server has started. kInvalidArgument:
  // not an address; kAlreadyExists: the port is in use; kFailedPrecondition: not an address of this
  // host.
  Status Open(const std::string& address);
  // Call it before the server shuts down. Takes no new connections; existing ones stay.
  void Close();
  // Destroy it after the server has shut down.
  ~GuardedPort();
  GuardedPort(const GuardedPort&) = delete;
  GuardedPort& operator=(const GuardedPort&) = delete;

  // The listening address, with the real port if 0 was requested. Call it after Open.
  const std::string& address() const { return address_; }

  // ---- Thread-safe

  // Returns who the caller is. kUnauthenticated, with a sentence, if the caller is unknown.
  StatusOr<Caller> Identify(const grpc::ServerContextBase& context) const;
  // Marks this call's connection as known. The port cuts the connection when the certificate of
  // `caller` expires. Call it after Open.
  void LetIn(const grpc::ServerContextBase& context, const Caller& caller);
  // Cuts every connection of the member with this name, and so all calls on it. Call it after Open.
  void Cut(const std::string& member);

 private:
  const bool tls_;
  const std::string token_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::shared_ptr<EventLoopThread> thread_;  // set by Open
  std::unique_ptr<Listener> listener_;       // used on the loop
  std::string address_;
};

}  // namespace longhaul
