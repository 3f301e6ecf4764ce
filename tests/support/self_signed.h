// A certificate of 127.0.0.1 that nobody else has signed, and its key, in files. For tests.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <string>

namespace longhaul::testing {

// Writes both as PEM, over what is there. Returns the certificate's serial number.
inline long WriteSelfSigned(const std::string& certificate_file, const std::string& key_file) {
  static long serial = 1000;
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const made = X509_new();
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), 3600);
  X509_set_pubkey(made, key);
  X509_NAME* const name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("127.0.0.1"), -1, -1, 0);
  X509_set_issuer_name(made, name);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(made, names, -1);
  X509_EXTENSION_free(names);
  X509_sign(made, key, EVP_sha256());
  BIO* const certificate_out = BIO_new_file(certificate_file.c_str(), "w");
  PEM_write_bio_X509(certificate_out, made);
  BIO_free(certificate_out);
  BIO* const key_out = BIO_new_file(key_file.c_str(), "w");
  PEM_write_bio_PrivateKey(key_out, key, nullptr, nullptr, 0, nullptr, nullptr);
  BIO_free(key_out);
  X509_free(made);
  EVP_PKEY_free(key);
  return serial;
}

}  // namespace longhaul::testing
