// Parses certificates. Pure. TLS has already checked the certificate against the authority.
#pragma once

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
  std::string key_sha256;  // hash of its key, as RequestedKey returns it
};
// Reads the first certificate in `pem`. kInvalidArgument: it is not a member's.
StatusOr<MemberCertificate> ReadMemberCertificate(std::string_view pem);
// SHA-256 of the first certificate of `pem` (DER), 64 hexadecimal digits.
StatusOr<std::string> Fingerprint(std::string_view pem);
// Returns the SHA-256 of the key that a request is for, and signed by. Refuses the requests that
// Authority::Sign refuses.
StatusOr<std::string> RequestedKey(std::string_view request_pem);

}  // namespace longhaul
