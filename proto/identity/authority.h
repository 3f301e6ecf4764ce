// The certificate authority of an installation, which is a coordinator and its members (member.h):
// a P-256 key and the key's own certificate. An attacker with the key could pose as the
// coordinator, so the key never leaves the coordinator's state directory. The key is not enough to
// pose as a member, because the coordinator also knows each member's own key
// (coordinator/store/members.h).
//
// An Authority is immutable, so any thread may use it. Keys and certificates are PEM texts. Errors:
// kInvalidArgument (bytes from outside), kFailedPrecondition (files), kInternal (OpenSSL).
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/certificate.h"
#include "proto/identity/member.h"

namespace longhaul {

// The one name in the coordinator's certificate, whatever its address is.
inline constexpr char kCoordinatorName[] = "coordinator.longhaul";
// The usual lifetime of a member's certificate.
inline constexpr absl::Duration kDefaultLifetime = absl::Hours(24 * 30);

// The identity of a TLS server.
struct ServerIdentity {
  std::string key_pem;
  std::string chain_pem;      // the server's certificate, then the authority's
  std::string authority_pem;  // members of this authority are accepted
};

class Authority {
 public:
  // Makes a new key and certificate, valid for 10 years from `now`.
  static StatusOr<Authority> Make(absl::Time now);
  // Reads the result of ToPem: the key, then the certificate.
  static StatusOr<Authority> FromPem(std::string_view pem);
  std::string ToPem() const { return key_pem_ + certificate_pem_; }

  const std::string& certificate_pem() const { return certificate_pem_; }
  // The certificate's Fingerprint (certificate.h).
  const std::string& fingerprint() const { return fingerprint_; }

  // Returns a certificate of `member`, which ends `lifetime` after `now`. Takes only the public key
  // from the signing request. kInvalidArgument: the request is not signed by its own key, the key
  // is not P-256, or CheckMember refuses `member`.
  StatusOr<std::string> Sign(std::string_view request_pem, const Member& member, absl::Time now,
                             absl::Duration lifetime) const;
  // Makes a new key and certificate for the coordinator, valid for 10 years from `now`.
  StatusOr<ServerIdentity> MakeServerIdentity(absl::Time now) const;

 private:
  Authority(std::string key_pem, std::string certificate_pem, std::string fingerprint);
  std::string key_pem_, certificate_pem_, fingerprint_;
};

}  // namespace longhaul
