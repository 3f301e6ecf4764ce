#include "proto/identity/openssl.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "proto/identity/certificate.h"

namespace longhaul::openssl {
namespace {

// Never asks a terminal for a passphrase.
int NoPassphrase(char*, int, int, void*) {
  return 0;
}

StatusOr<Bio> Reader(std::string_view pem) {
  if (pem.size() > kMaxPemBytes) {
    return InvalidArgument("expected at most {} bytes of PEM, got {}", kMaxPemBytes, pem.size());
  }
  Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (bio == nullptr) return Failed("memory");
  return bio;
}

Status NotThere(std::string_view what) {
  ERR_clear_error();
  return InvalidArgument("expected {} as PEM", what);
}

template <class Write>
StatusOr<std::string> Written(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || write(bio.get()) != 1) return Failed("writing PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

bool IsP256(EVP_PKEY* key) {
  char group[32] = "";
  size_t size = 0;
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, group, sizeof(group), &size) == 1 &&
         std::string_view(group, size) == "prime256v1";
}

}  // namespace

Status Failed(std::string_view what) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return Internal("OpenSSL, {}: {}", what, text);
}

StatusOr<Key> NewKey() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("making a key");
  return key;
}

StatusOr<Key> ReadKey(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const Bio bio, Reader(pem));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (key == nullptr || !IsP256(key.get())) return NotThere("a private key of P-256");
  return key;
}

StatusOr<Certificate> ReadCertificate(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const Bio bio, Reader(pem));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (certificate == nullptr) return NotThere("a certificate");
  return certificate;
}

StatusOr<Request> ReadRequest(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const Bio bio, Reader(pem));
  Request request(PEM_read_bio_X509_REQ(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (request == nullptr) return NotThere("a certificate signing request");
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || !IsP256(key)) return NotThere("a request for a key of P-256");
  if (X509_REQ_verify(request.get(), key) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        "the signing request is not signed by the key that it is for");
  }
  return request;
}

StatusOr<std::string> ToPem(EVP_PKEY* key) {
  return Written([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

StatusOr<std::string> ToPem(X509* certificate) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

StatusOr<std::string> ToPem(X509_REQ* request) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request); });
}

}  // namespace longhaul::openssl
