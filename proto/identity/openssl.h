// RAII wrappers of OpenSSL's objects, and OpenSSL's error texts. Internal to proto/identity.
// Thread-safe. If OpenSSL fails, functions return kInternal.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::openssl {

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<&EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<&X509_free>>;
using Request = std::unique_ptr<X509_REQ, Free<&X509_REQ_free>>;
using Name = std::unique_ptr<X509_NAME, Free<&X509_NAME_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<&X509_EXTENSION_free>>;
using Bio = std::unique_ptr<BIO, Free<&BIO_free_all>>;

// Returns kInternal with `what` (the step that failed) and the oldest error in OpenSSL's queue of
// errors, which each thread has. Empties the queue.
Status Failed(std::string_view what);

// Makes a P-256 key.
StatusOr<Key> NewKey();
// Read the first object of their kind in a PEM text, and skip objects of other kinds. Keys must be
// P-256. kInvalidArgument: there is no valid object of the kind.
StatusOr<Key> ReadKey(std::string_view pem);
StatusOr<Certificate> ReadCertificate(std::string_view pem);
StatusOr<Request> ReadRequest(std::string_view pem);  // must be signed by its own key
// Do not take ownership.
StatusOr<std::string> ToPem(EVP_PKEY* key);
StatusOr<std::string> ToPem(X509* certificate);
StatusOr<std::string> ToPem(X509_REQ* request);

}  // namespace longhaul::openssl
