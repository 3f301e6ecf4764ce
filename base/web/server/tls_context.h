// A web server's certificate and key, read from files that somebody else renews, and a connection
// that is encrypted with them. Internal to base/web/server.
#pragma once

#include <openssl/ssl.h>

#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

namespace longhaul::web {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;

// Thread-safe.
class TlsContext {
 public:
  // Reads a chain of certificates and its key, both PEM. kFailedPrecondition: a file cannot be
  // read, or they do not fit together; the message names the files.
  static StatusOr<std::unique_ptr<TlsContext>> Load(const std::string& certificate_file,
                                                    const std::string& key_file);

  // Returns the state of a new connection on this socket; null: OpenSSL failed. Reads the files
  // anew if they have changed; where that fails, the certificate of before stays.
  SslPtr NewConnection(int socket);

 private:
  using Context = std::shared_ptr<SSL_CTX>;
  TlsContext(std::string certificate_file, std::string key_file)
      : certificate_file_(std::move(certificate_file)), key_file_(std::move(key_file)) {}
  StatusOr<Context> Read() const;
  std::string Stamp() const;

  const std::string certificate_file_, key_file_;
  std::mutex mutex_;  // guards the members below
  Context context_;
  std::string stamp_;  // of the files as `context_` has them
};

}  // namespace longhaul::web
