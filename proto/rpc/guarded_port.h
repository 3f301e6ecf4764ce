// The port of a gRPC server that must know its callers. A Listener (listener.h) accepts the
// connections. A connection is a stranger until LetIn is called for one of its calls. The listener
// limits the number, the time and the bytes of strangers.
//
//   grpc::ServerBuilder builder;
//   GuardedPort port({.identity = identity}, &builder);
//   ...services that ask port.Identify(*context) first in every call, and then port.LetIn...
//   server = builder.BuildAndStart();
//   LH_RETURN_IF_ERROR(port.Open("0.0.0.0:7070"));
//
// A connection's first call must fit into kMaxStrangerBytes, together with the TLS handshake and
// everything that the client sends before the first answer. The reason: a unary handler only runs
// when the whole request has arrived. Clients with larger calls make a small call first.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/event_loop.h"
#include "base/status.h"
#include "proto/identity/rotation.h"
#include "proto/rpc/caller.h"
#include "proto/rpc/listener.h"

namespace longhaul {

// How callers prove who they are.
struct PortSecurity {
  std::optional<ServerIdentity> identity;  // TLS and certificates; nullopt: no encryption
  // Set: from `next_from` on the port has this identity instead, and cuts all connections of
  // before, because they were made with authorities that may not be trusted any longer.
  std::optional<ServerIdentity> next;
  absl::Time next_from = absl::InfiniteFuture();
  std::string token;  // without TLS: every caller's token (auth.h); empty: all are admitted
};

// Returns the security of a port with TLS, also while the authority's key is rotated.
StatusOr<PortSecurity> SecurityOf(const Authorities& authorities, absl::Time now);

class GuardedPort {
 public:
  // `builder` is used during this call only.
  GuardedPort(const PortSecurity& security, grpc::ServerBuilder* builder);
  // Begins to listen at "host:port". Call Open once, after the server has started.
  // kInvalidArgument: not an address. kAlreadyExists: the port is in use. kFailedPrecondition: not
  // an address of this host. Other errors: by errno.
  Status Open(const std::string& address);
  // Takes no new connections; existing ones stay. Call Close before the server shuts down. Does
  // nothing if Open was not called.
  void Close();
  // Cuts all connections. Destroy the port after the server has shut down.
  ~GuardedPort();
  GuardedPort(const GuardedPort&) = delete;
  GuardedPort& operator=(const GuardedPort&) = delete;

  // The listening address, with the real port if 0 was requested. Empty before Open.
  const std::string& address() const { return address_; }

  // ---- Thread-safe

  // Returns the identity of the caller. kUnauthenticated: the caller is unknown; the message is a
  // sentence for the caller.
  StatusOr<Caller> Identify(const grpc::ServerContextBase& context) const;
  // Counts this call's connection as one of the member's; more calls on it count once. `most`: how
  // many connections the member may have; 0: any number. kResourceExhausted: it has as many; the
  // message says what to do. Call MayConnect before LetIn.
  Status MayConnect(const grpc::ServerContextBase& context, const Caller& caller, size_t most);
  // Marks this call's connection as known, so that it is no stranger any more. `caller` is the
  // result of Identify; the port cuts the connection at caller.until. Call LetIn after Open.
  void LetIn(const grpc::ServerContextBase& context, const Caller& caller);
  // Cuts every connection of the member with this name, and with it all calls on the connection.
  // The connections are those for which LetIn was called before Cut, on whatever thread. Returns
  // before they are cut. Call Cut after Open.
  void Cut(const std::string& member);

 private:
  // The connections of each member.
  struct Connected {
    std::mutex mutex;                                      // guards the members below
    std::unordered_map<std::string, std::string> by_peer;  // the member's name
    std::unordered_map<std::string, size_t> of_member;
    void Forget(const std::string& peer);
  };
  // Turns to the next identity when its time has come. Runs on the loop.
  void TurnInTime();

  const bool tls_;
  const std::string token_;
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;
  const Acceptor acceptor_;
  const Acceptor next_acceptor_;  // null: the identity stays
  const absl::Time next_from_;
  bool turned_ = false;  // used on the loop: next_acceptor_ serves
  Connected connected_;
  std::shared_ptr<EventLoopThread> thread_;  // set by Open
  std::unique_ptr<Listener> listener_;       // used on the loop
  std::string address_;
};

}  // namespace longhaul
