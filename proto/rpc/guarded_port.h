// The port of a gRPC server whose callers have to know a token. Connections come in through a
// Listener (listener.h). A connection is a stranger until it carries a call with the right token.
//
//   grpc::ServerBuilder builder;
//   GuardedPort port(token, &builder);
//   ...services that call port.Check(*context) first in every call...
//   server = builder.BuildAndStart();
//   LH_RETURN_IF_ERROR(port.Open("0.0.0.0:7070"));
//
// The first call of a connection has to fit into kMaxStrangerBytes, with all that is streamed
// before its first answer: a unary handler runs only when the whole request is there. Clients that
// send more make a small call first.
#ifndef LONGHAUL_PROTO_RPC_GUARDED_PORT_H_
#define LONGHAUL_PROTO_RPC_GUARDED_PORT_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/status.h"
#include "proto/rpc/listener.h"

namespace longhaul {

class GuardedPort {
 public:
  // An empty token lets everybody in. `builder` is used during this call only.
  GuardedPort(std::string token, grpc::ServerBuilder* builder);
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
  // What CheckToken (auth.h) says. Thread-safe.
  Status Check(const grpc::CallbackServerContext& context);

 private:
  const std::string token_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::shared_ptr<EventLoopThread> thread_;  // from Open
  std::unique_ptr<Listener> listener_;       // on the loop
  std::string address_;
};

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_RPC_GUARDED_PORT_H_
