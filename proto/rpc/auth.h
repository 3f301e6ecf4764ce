// Bearer tokens for coordinators without TLS (base/token.h), in the metadata of every call. gRPC's
// own call credentials need a secure channel, so the token is added to each ClientContext here.
// Thread-safe.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// Key in the initial metadata of every call to a coordinator whose authority's key is rotated: the
// fingerprint of the authority that signs certificates now.
inline constexpr char kSignerKey[] = "longhaul-authority";

// Adds the token to a call, before the call starts, once per context. An empty token adds nothing.
void AddToken(grpc::ClientContext* context, std::string_view token);

// Returns a caller's address without the port: "192.0.2.7", "fd00::1". base/peer_log.h counts lines
// by this address, because a caller can vary its port.
std::string PeerHost(const grpc::ServerContextBase& context);

// Returns OK if the call carries `token` (compared in constant time), else kUnauthenticated with a
// sentence for the caller. If `token` is empty, returns OK for every call: a daemon without a token
// listens on loopback only.
Status CheckToken(const grpc::ServerContextBase& context, std::string_view token);

}  // namespace longhaul
