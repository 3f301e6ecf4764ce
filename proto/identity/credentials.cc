#include "proto/identity/credentials.h"

#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/private_files.h"
#include "proto/identity/openssl.h"
#include "proto/identity/rotation.h"

namespace longhaul {
namespace {

constexpr std::string_view kBeginCertificate = "-----BEGIN CERTIFICATE-----";

}  // namespace

StatusOr<std::string> MakeKey() {
  LH_ASSIGN_OR_RETURN(const openssl::Key key, openssl::NewKey());
  return openssl::ToPem(key.get());
}

StatusOr<std::string> MakeRequest(std::string_view key_pem) {
  LH_ASSIGN_OR_RETURN(const openssl::Key key, openssl::ReadKey(key_pem));
  const openssl::Request request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) <= 0) {
    return openssl::Failed("a signing request");
  }
  return openssl::ToPem(request.get());
}

std::string ToPem(const Credentials& credentials) {
  return credentials.key_pem + credentials.certificate_pem + credentials.authority_pem;
}

StatusOr<Credentials> ParseCredentials(std::string_view pem) {
  if (pem.size() > kMaxPemBytes) {
    return InvalidArgument("expected at most {} bytes, got {}", kMaxPemBytes, pem.size());
  }
  Credentials credentials;
  const size_t first = pem.find(kBeginCertificate);
  LH_ASSIGN_OR_RETURN(const openssl::Key key, openssl::ReadKey(pem.substr(0, first)));
  LH_ASSIGN_OR_RETURN(credentials.key_pem, openssl::ToPem(key.get()));
  if (first == std::string_view::npos) return credentials;
  const size_t second = pem.find(kBeginCertificate, first + 1);
  if (second == std::string_view::npos) {
    return absl::InvalidArgumentError("expected the authority's certificate behind the member's");
  }
  const std::string_view own = pem.substr(first, second - first);
  LH_ASSIGN_OR_RETURN(const openssl::Certificate certificate, openssl::ReadCertificate(own));
  LH_ASSIGN_OR_RETURN(credentials.authority_pem,
                      StillTrusted(pem.substr(second), absl::InfinitePast()));
  LH_RETURN_IF_ERROR(ReadMemberCertificate(own).status());
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("the key is not that of the certificate");
  }
  LH_ASSIGN_OR_RETURN(credentials.certificate_pem, openssl::ToPem(certificate.get()));
  return credentials;
}

StatusOr<Credentials> LoadCredentials(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) {
    return NotFound("{} is not there", path);
  }
  StatusOr<Credentials> credentials = [&]() -> StatusOr<Credentials> {
    LH_ASSIGN_OR_RETURN(const std::string pem, ReadFile(path, kMaxPemBytes));
    return ParseCredentials(pem);
  }();
  if (credentials.ok()) return credentials;
  return FailedPrecondition(
      "{} cannot be used as a key and its certificate: {}; remove it, and join again "
      "with a join token",
      path, Message(credentials.status()));
}

Status StoreCredentials(const std::string& path, const Credentials& credentials) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  // The folder may be one of the user's, such as ~/.config: only what is made here is private.
  if (std::error_code error; !folder.empty() && !std::filesystem::exists(folder, error)) {
    LH_RETURN_IF_ERROR(MakePrivateDirectories(folder));
  }
  return WriteFileAtomic(path, ToPem(credentials), 0600);
}

absl::Time RenewalTime(const MemberCertificate& certificate) {
  return certificate.not_before + (certificate.not_after - certificate.not_before) * 2 / 3;
}

}  // namespace longhaul
