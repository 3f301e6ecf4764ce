// A member's own key, its certificate, and the authority that it trusts: one PEM file of mode 0600
// with the three one after the other. A file with the key alone (FILE.joining) is of an attempt to
// join that has not succeeded yet; the next attempt uses the same key. Pure but for the two
// functions of files.
#ifndef LONGHAUL_PROTO_IDENTITY_CREDENTIALS_H_
#define LONGHAUL_PROTO_IDENTITY_CREDENTIALS_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/certificate.h"

namespace longhaul {

struct Credentials {
  std::string key_pem;          // empty: of a caller that is not known yet
  std::string certificate_pem;  // empty: not joined yet
  std::string authority_pem;

  bool joined() const { return !certificate_pem.empty(); }
};

// A new P-256 key.
StatusOr<std::string> MakeKey();
// A signing request for a key, signed by it.
StatusOr<std::string> MakeRequest(std::string_view key_pem);

std::string ToPem(const Credentials& credentials);
// kInvalidArgument where a part is missing or damaged, or key and certificate are not of each
// other.
StatusOr<Credentials> ParseCredentials(std::string_view pem);

// kNotFound: there is no such file. kFailedPrecondition: what it holds, and what to do.
StatusOr<Credentials> LoadCredentials(const std::string& path);
Status StoreCredentials(const std::string& path, const Credentials& credentials);

// When a certificate is renewed: after two thirds of its time.
absl::Time RenewalTime(const MemberCertificate& certificate);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_IDENTITY_CREDENTIALS_H_
