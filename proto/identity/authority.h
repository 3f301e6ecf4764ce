// The certificate authority of an installation: a P-256 key and its own certificate. Whoever has
// the key can pass for the coordinator; it never leaves its state directory. Members are known by
// their keys, too (coordinator/store/members.h).
//
// Immutable, so any thread may use it. Errors: kInvalidArgument (bytes that somebody gave),
// kFailedPrecondition (files), kInternal (OpenSSL).
#ifndef LONGHAUL_PROTO_IDENTITY_AUTHORITY_H_
#define LONGHAUL_PROTO_IDENTITY_AUTHORITY_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/certificate.h"
#include "proto/identity/member.h"

namespace longhaul {

// The one name that the coordinator's certificate has, whatever its address is.
inline constexpr char kCoordinatorName[] = "coordinator.longhaul";
inline constexpr absl::Duration kDefaultLifetime = absl::Hours(24 * 30);

// What a TLS server shows: its key, and its certificate with the authority's behind it.
struct ServerIdentity {
  std::string key_pem;
  std::string chain_pem;
  std::string authority_pem;  // whose members it takes
};

class Authority {
 public:
  static StatusOr<Authority> Make(absl::Time now);
  static StatusOr<Authority> FromPem(std::string_view pem);
  std::string ToPem() const { return key_pem_ + certificate_pem_; }

  const std::string& certificate_pem() const { return certificate_pem_; }
  const std::string& fingerprint() const { return fingerprint_; }

  // A certificate for the key of a signing request (PEM). Of the request nothing else is taken: it
  // must be signed by its own key, and that is of P-256. kInvalidArgument.
  StatusOr<std::string> Sign(std::string_view request_pem, const Member& member, absl::Time now,
                             absl::Duration lifetime) const;
  // A new key and certificate of the coordinator, as long as the authority's own.
  StatusOr<ServerIdentity> MakeServerIdentity(absl::Time now) const;

 private:
  Authority(std::string key_pem, std::string certificate_pem, std::string fingerprint);
  std::string key_pem_, certificate_pem_, fingerprint_;
};

// <state_dir>/authority.pem, mode 0600. `made`: it was not there.
StatusOr<Authority> LoadOrMakeAuthority(const std::string& state_dir, absl::Time now, bool* made);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_IDENTITY_AUTHORITY_H_
