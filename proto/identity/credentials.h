// The credentials of a member (member.h): the member's private key, the member's certificate and
// the certificate of the authority that the member trusts, in this order in a PEM file of mode
// 0600. While the authority's key is rotated (rotation.h), the member trusts two. While a member
// joins, the file <path>.joining holds only the key. If the attempt to join fails, the next attempt
// uses the same key. Pure, except LoadCredentials and StoreCredentials. If OpenSSL fails, functions
// return kInternal.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/certificate.h"

namespace longhaul {

struct Credentials {
  std::string key_pem;          // empty: no key was made yet
  std::string certificate_pem;  // empty: not joined yet
  std::string authority_pem;    // one or several certificates; empty: none is known yet

  bool joined() const { return !certificate_pem.empty(); }
};

// Makes a new P-256 key (PEM).
StatusOr<std::string> MakeKey();
// Makes a signing request (PEM) for a key, signed by the key. kInvalidArgument: not a P-256 key.
StatusOr<std::string> MakeRequest(std::string_view key_pem);

std::string ToPem(const Credentials& credentials);
// Accepts all three parts, or the key alone. kInvalidArgument: a part is missing or damaged, or the
// certificate is not that of the key.
StatusOr<Credentials> ParseCredentials(std::string_view pem);

// kNotFound: there is no such file. kFailedPrecondition: the file cannot be read or is damaged; the
// message names the fault and says what to do.
StatusOr<Credentials> LoadCredentials(const std::string& path);
// Replaces the file atomically, and makes its folder if needed. Errors: by errno.
Status StoreCredentials(const std::string& path, const Credentials& credentials);

// Returns the time from which a certificate should be renewed: after two thirds of its lifetime.
absl::Time RenewalTime(const MemberCertificate& certificate);

}  // namespace longhaul
