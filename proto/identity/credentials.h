// A member's own key, its certificate and the authority that it trusts, one after the other in a
// PEM file of mode 0600. FILE.joining holds only the key, from an attempt to join that has not
// succeeded yet; the next attempt uses the same key. Pure, except LoadCredentials and
// StoreCredentials.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/certificate.h"

namespace longhaul {

struct Credentials {
  std::string key_pem;          // empty: none was made yet
  std::string certificate_pem;  // empty: not joined yet
  std::string authority_pem;

  bool joined() const { return !certificate_pem.empty(); }
};

// Makes a new P-256 key (PEM).
StatusOr<std::string> MakeKey();
// Makes a signing request (PEM) for a key, signed by the key.
StatusOr<std::string> MakeRequest(std::string_view key_pem);

std::string ToPem(const Credentials& credentials);
// Accepts all three parts, or the key alone. kInvalidArgument: a part is missing or damaged, or the
// certificate is not that of the key.
StatusOr<Credentials> ParseCredentials(std::string_view pem);

// kNotFound: no such file. kFailedPrecondition names the fault in the file, and says what to do.
StatusOr<Credentials> LoadCredentials(const std::string& path);
Status StoreCredentials(const std::string& path, const Credentials& credentials);

// Returns the time from which a certificate should be renewed: after two thirds of its lifetime.
absl::Time RenewalTime(const MemberCertificate& certificate);

}  // namespace longhaul
