#include "proto/identity/signature.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

#include "proto/identity/openssl.h"

namespace longhaul {
namespace {

using DigestContext = std::unique_ptr<EVP_MD_CTX, openssl::Free<&EVP_MD_CTX_free>>;

}  // namespace

StatusOr<std::string> SignText(std::string_view key_pem, std::string_view purpose,
                               std::string_view text) {
  LH_ASSIGN_OR_RETURN(const openssl::Key key, openssl::ReadKey(key_pem));
  const DigestContext context(EVP_MD_CTX_new());
  size_t size = 0;
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSignUpdate(context.get(), purpose.data(), purpose.size()) != 1 ||
      EVP_DigestSignUpdate(context.get(), text.data(), text.size()) != 1 ||
      EVP_DigestSignFinal(context.get(), nullptr, &size) != 1) {
    return openssl::Failed("signing");
  }
  std::string signature(size, '\0');
  if (EVP_DigestSignFinal(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                          &size) != 1) {
    return openssl::Failed("signing");
  }
  signature.resize(size);
  return signature;
}

bool IsSignedBy(std::string_view certificate_pem, std::string_view purpose, std::string_view text,
                std::string_view signature) {
  const StatusOr<openssl::Certificate> certificate = openssl::ReadCertificate(certificate_pem);
  if (!certificate.ok()) return false;
  EVP_PKEY* const key = X509_get0_pubkey(certificate->get());
  const DigestContext context(EVP_MD_CTX_new());
  const bool is_good =
      key != nullptr && context != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
      EVP_DigestVerifyUpdate(context.get(), purpose.data(), purpose.size()) == 1 &&
      EVP_DigestVerifyUpdate(context.get(), text.data(), text.size()) == 1 &&
      EVP_DigestVerifyFinal(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                            signature.size()) == 1;
  ERR_clear_error();
  return is_good;
}

}  // namespace longhaul
