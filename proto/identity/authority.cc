#include "proto/identity/authority.h"

#include <fmt/core.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "proto/identity/openssl.h"

namespace longhaul {
namespace {

constexpr char kOrganization[] = "longhaul";
constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);
// Clocks of rented machines differ, and jump while runs train. A certificate that is good for the
// past, too, takes nothing from its end.
constexpr absl::Duration kBackdated = absl::Hours(24);
constexpr long kVersion3 = 2;

// Different for each authority: OpenSSL finds who signed a certificate by this name, and while the
// authority is rotated there are two (rotation.h).
std::string NewName() {
  return "longhaul authority " + absl::BytesToHexString(RandomBytes(8));
}

using Subject = std::vector<std::pair<const char*, std::string>>;

Status AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const openssl::Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return openssl::Failed("an extension of a certificate");
  }
  return absl::OkStatus();
}

Status SetSerial(X509* certificate) {
  std::array<unsigned char, 16> random{};
  if (RAND_bytes(random.data(), random.size()) != 1) return openssl::Failed("random bytes");
  random[0] &= 0x7f;  // a positive number
  const std::unique_ptr<BIGNUM, openssl::Free<&BN_free>> number(
      BN_bin2bn(random.data(), random.size(), nullptr));
  if (number == nullptr ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return openssl::Failed("a serial number");
  }
  return absl::OkStatus();
}

// All but extensions and the signature.
StatusOr<openssl::Certificate> Begin(EVP_PKEY* key, const Subject& subject, absl::Time now,
                                     absl::Duration lifetime) {
  openssl::Certificate certificate(X509_new());
  if (certificate == nullptr) return openssl::Failed("a certificate");
  LH_RETURN_IF_ERROR(SetSerial(certificate.get()));
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  for (const auto& [kind, text] : subject) {
    if (X509_NAME_add_entry_by_txt(name, kind, MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()), -1, 0) != 1) {
      return openssl::Failed("a subject");
    }
  }
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()),
                absl::ToTimeT(now - std::min(kBackdated, lifetime)));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(now + lifetime));
  if (X509_set_version(certificate.get(), kVersion3) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return openssl::Failed("a certificate");
  }
  return certificate;
}

struct Issuer {
  openssl::Key key;
  openssl::Certificate certificate;
};

StatusOr<std::string> Finish(openssl::Certificate certificate, const Issuer& issuer,
                             const std::vector<std::pair<int, std::string>>& extensions) {
  X509* const by = issuer.certificate ? issuer.certificate.get() : certificate.get();
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(by)) != 1) {
    return openssl::Failed("an issuer");
  }
  for (const auto& [nid, value] : extensions) {
    LH_RETURN_IF_ERROR(AddExtension(certificate.get(), by, nid, value.c_str()));
  }
  if (X509_sign(certificate.get(), issuer.key.get(), EVP_sha256()) <= 0) {
    return openssl::Failed("signing");
  }
  return openssl::ToPem(certificate.get());
}

StatusOr<Issuer> ReadIssuer(std::string_view key_pem, std::string_view certificate_pem) {
  LH_ASSIGN_OR_RETURN(openssl::Key key, openssl::ReadKey(key_pem));
  LH_ASSIGN_OR_RETURN(openssl::Certificate certificate, openssl::ReadCertificate(certificate_pem));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("the authority's key is not that of its certificate");
  }
  if (X509_check_ca(certificate.get()) != 1) {
    return absl::InvalidArgumentError("expected an authority's certificate, got another one");
  }
  return Issuer{std::move(key), std::move(certificate)};
}

}  // namespace

Authority::Authority(std::string key_pem, std::string certificate_pem, std::string fingerprint)
    : key_pem_(std::move(key_pem)),
      certificate_pem_(std::move(certificate_pem)),
      fingerprint_(std::move(fingerprint)) {}

StatusOr<Authority> Authority::Make(absl::Time now) {
  LH_ASSIGN_OR_RETURN(openssl::Key key, openssl::NewKey());
  LH_ASSIGN_OR_RETURN(std::string key_pem, openssl::ToPem(key.get()));
  LH_ASSIGN_OR_RETURN(
      openssl::Certificate certificate,
      Begin(key.get(), {{"O", kOrganization}, {"CN", NewName()}}, now, kAuthorityLifetime));
  LH_ASSIGN_OR_RETURN(std::string pem,
                      Finish(std::move(certificate), Issuer{std::move(key), nullptr},
                             {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                              {NID_key_usage, "critical,keyCertSign"},
                              {NID_subject_key_identifier, "hash"}}));
  LH_ASSIGN_OR_RETURN(std::string fingerprint, Fingerprint(pem));
  return Authority(std::move(key_pem), std::move(pem), std::move(fingerprint));
}

StatusOr<Authority> Authority::FromPem(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(pem, pem));
  LH_ASSIGN_OR_RETURN(std::string key_pem, openssl::ToPem(issuer.key.get()));
  LH_ASSIGN_OR_RETURN(std::string certificate_pem, openssl::ToPem(issuer.certificate.get()));
  LH_ASSIGN_OR_RETURN(std::string fingerprint, Fingerprint(certificate_pem));
  return Authority(std::move(key_pem), std::move(certificate_pem), std::move(fingerprint));
}

StatusOr<std::string> Authority::Sign(std::string_view request_pem, const Member& member,
                                      absl::Time now, absl::Duration lifetime) const {
  LH_RETURN_IF_ERROR(CheckMember(member));
  LH_ASSIGN_OR_RETURN(const openssl::Request request, openssl::ReadRequest(request_pem));
  LH_ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(key_pem_, certificate_pem_));
  Subject subject = {
      {"O", kOrganization}, {"OU", std::string(ToString(member.role))}, {"CN", member.name}};
  if (!member.worker_id.empty()) subject.emplace_back("UID", member.worker_id);
  LH_ASSIGN_OR_RETURN(openssl::Certificate certificate,
                      Begin(X509_REQ_get0_pubkey(request.get()), subject, now, lifetime));
  return Finish(std::move(certificate), issuer,
                {{NID_basic_constraints, "critical,CA:FALSE"},
                 {NID_key_usage, "critical,digitalSignature"},
                 {NID_ext_key_usage, "clientAuth"}});
}

StatusOr<ServerIdentity> Authority::MakeServerIdentity(absl::Time now) const {
  LH_ASSIGN_OR_RETURN(const openssl::Key key, openssl::NewKey());
  LH_ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(key_pem_, certificate_pem_));
  LH_ASSIGN_OR_RETURN(
      openssl::Certificate certificate,
      Begin(key.get(), {{"O", kOrganization}, {"CN", kCoordinatorName}}, now, kAuthorityLifetime));
  LH_ASSIGN_OR_RETURN(std::string pem,
                      Finish(std::move(certificate), issuer,
                             {{NID_basic_constraints, "critical,CA:FALSE"},
                              {NID_key_usage, "critical,digitalSignature"},
                              {NID_ext_key_usage, "serverAuth"},
                              {NID_subject_alt_name, fmt::format("DNS:{}", kCoordinatorName)}}));
  LH_ASSIGN_OR_RETURN(std::string key_pem, openssl::ToPem(key.get()));
  return ServerIdentity{std::move(key_pem), pem + certificate_pem_, certificate_pem_};
}

}  // namespace longhaul
