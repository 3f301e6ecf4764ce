// What certificates say. Pure; nothing here decides whether a certificate is to be believed: TLS
// has checked it against the authority.
#ifndef LONGHAUL_PROTO_IDENTITY_CERTIFICATE_H_
#define LONGHAUL_PROTO_IDENTITY_CERTIFICATE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/member.h"

namespace longhaul {

// Largest certificate, key or signing request that is parsed. Longhaul's own have less than 1 KiB.
inline constexpr size_t kMaxPemBytes = 16 << 10;

struct MemberCertificate {
  Member member;
  absl::Time not_before, not_after;
  std::string key_sha256;  // of the key that it is for, as RequestedKey has it
};
// The first certificate of `pem`. kInvalidArgument where it is not a member's.
StatusOr<MemberCertificate> ReadMemberCertificate(std::string_view pem);
// SHA-256 of the first certificate of `pem` (DER), 64 hexadecimal digits.
StatusOr<std::string> Fingerprint(std::string_view pem);
// SHA-256 of the key that a signing request is for, which it is signed by. What Authority::Sign
// refuses is refused.
StatusOr<std::string> RequestedKey(std::string_view request_pem);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_IDENTITY_CERTIFICATE_H_
