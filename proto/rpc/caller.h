// The identity of a caller, as proved by its connection. Thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/member.h"

namespace longhaul {

struct Caller {
  // nullopt: the port has no encryption, and its callers may make all calls.
  std::optional<Member> member;
  absl::Time until = absl::InfiniteFuture();  // when the certificate expires; infinite: never
  std::string key_sha256 = {};                // hash of the certificate's key; "" without member
};

// Returns the caller's identity from TLS, for a port with TLS. The handshake has checked the
// certificate against the authority. kUnauthenticated: there is no certificate, it is not a
// member's, or it has expired by `now`.
StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, absl::Time now);

// Returns the caller's certificate (PEM); "": it has shown none.
std::string CertificateOf(const grpc::ServerContextBase& context);

}  // namespace longhaul
