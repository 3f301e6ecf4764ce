#include "proto/identity/certificate.h"

#include <openssl/asn1.h>
#include <openssl/objects.h>

#include <array>
#include <ctime>
#include <optional>

#include "absl/strings/escaping.h"
#include "proto/identity/openssl.h"

namespace longhaul {
namespace {

std::string Hex(const unsigned char* digest, unsigned size) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

// The one text of that kind in a subject; nullopt: none, several, or with a byte 0.
std::optional<std::string> TextOf(X509_NAME* subject, int nid) {
  const int at = X509_NAME_get_index_by_NID(subject, nid, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(subject, nid, at) >= 0) return std::nullopt;
  const ASN1_STRING* text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
  std::string value(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                    static_cast<size_t>(ASN1_STRING_length(text)));
  if (value.find('\0') != std::string::npos) return std::nullopt;
  return value;
}

std::optional<absl::Time> TimeOf(const ASN1_TIME* time) {
  std::tm utc{};
  if (ASN1_TIME_to_tm(time, &utc) != 1) return std::nullopt;
  return absl::FromTM(utc, absl::UTCTimeZone());
}

StatusOr<std::string> HashOf(EVP_PKEY* key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  if (size <= 0) return openssl::Failed("writing a key");
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned digest_size = 0;
  const int hashed = EVP_Digest(der, static_cast<size_t>(size), digest.data(), &digest_size,
                                EVP_sha256(), nullptr);
  OPENSSL_free(der);
  if (hashed != 1) return openssl::Failed("hashing a key");
  return Hex(digest.data(), digest_size);
}

}  // namespace

StatusOr<MemberCertificate> ReadMemberCertificate(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const openssl::Certificate certificate, openssl::ReadCertificate(pem));
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  const auto name = TextOf(subject, NID_commonName);
  const auto role_text = TextOf(subject, NID_organizationalUnitName);
  const auto begin = TimeOf(X509_get0_notBefore(certificate.get()));
  const auto end = TimeOf(X509_get0_notAfter(certificate.get()));
  if (!name || !role_text || !begin || !end) {
    return absl::InvalidArgumentError(
        "expected a member's certificate, with a name, a role and its times");
  }
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(*role_text));
  MemberCertificate read{.member = {.name = *name, .role = role, .worker_id = {}},
                         .not_before = *begin,
                         .not_after = *end,
                         .key_sha256 = {}};
  read.member.worker_id = TextOf(subject, NID_userId).value_or("");
  LH_RETURN_IF_ERROR(CheckMember(read.member));
  EVP_PKEY* const key = X509_get0_pubkey(certificate.get());
  if (key == nullptr) return openssl::Failed("reading a certificate's key");
  LH_ASSIGN_OR_RETURN(read.key_sha256, HashOf(key));
  return read;
}

StatusOr<std::string> Fingerprint(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const openssl::Certificate certificate, openssl::ReadCertificate(pem));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (X509_digest(certificate.get(), EVP_sha256(), digest.data(), &size) != 1) {
    return openssl::Failed("hashing a certificate");
  }
  return Hex(digest.data(), size);
}

StatusOr<std::vector<std::string>> CertificatesIn(std::string_view pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  constexpr size_t kMost = 8;
  std::vector<std::string> certificates;
  for (size_t at = pem.find(kBegin); at != std::string_view::npos;) {
    if (certificates.size() == kMost) {
      return InvalidArgument("expected at most {} certificates, got more", kMost);
    }
    const size_t next = pem.find(kBegin, at + 1);
    LH_ASSIGN_OR_RETURN(const openssl::Certificate certificate,
                        openssl::ReadCertificate(pem.substr(at, next - at)));
    LH_ASSIGN_OR_RETURN(certificates.emplace_back(), openssl::ToPem(certificate.get()));
    at = next;
  }
  if (certificates.empty()) return absl::InvalidArgumentError("expected a certificate, got none");
  return certificates;
}

StatusOr<std::string> RequestedKey(std::string_view request_pem) {
  LH_ASSIGN_OR_RETURN(const openssl::Request request, openssl::ReadRequest(request_pem));
  return HashOf(X509_REQ_get0_pubkey(request.get()));
}

}  // namespace longhaul
