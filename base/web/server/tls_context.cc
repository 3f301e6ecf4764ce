#include "base/web/server/tls_context.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <sys/stat.h>

#include <utility>

#include "base/log.h"

namespace longhaul::web {
namespace {

// The oldest error of OpenSSL on this thread, whose list is then empty.
std::string LastError() {
  char text[256] = "unknown error";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, text, sizeof(text));
  }
  ERR_clear_error();
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const std::string& certificate_file,
                                                       const std::string& key_file) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<TlsContext> made(new TlsContext(certificate_file, key_file));
  made->stamp_ = made->Stamp();
  LH_ASSIGN_OR_RETURN(made->context_, made->Read());
  return made;
}

StatusOr<TlsContext::Context> TlsContext::Read() const {
  Context context(SSL_CTX_new(TLS_server_method()), FreeSsl());
  if (context == nullptr) return Internal("OpenSSL made no TLS context: {}", LastError());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Nobody resumes sessions, whose tickets would weaken later ones.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file_.c_str()) != 1) {
    return FailedPrecondition("{}: expected a certificate or a chain of them in PEM: {}",
                              certificate_file_, LastError());
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file_.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return FailedPrecondition("{}: expected the key of {} in PEM, without a password: {}",
                              key_file_, certificate_file_, LastError());
  }
  return context;
}

std::string TlsContext::Stamp() const {
  std::string stamp;
  for (const std::string& file : {certificate_file_, key_file_}) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) return "";
    stamp += fmt::format("{} {}.{} {};", found.st_ino, found.st_mtim.tv_sec, found.st_mtim.tv_nsec,
                         found.st_size);
  }
  return stamp;
}

SslPtr TlsContext::NewConnection(int socket) {
  Context context;
  {
    const std::lock_guard lock(mutex_);
    if (std::string stamp = Stamp(); !stamp.empty() && stamp != stamp_) {
      StatusOr<Context> renewed = Read();
      if (renewed.ok()) {
        context_ = *std::move(renewed);
        LogInfo("the certificate in {} was read anew", certificate_file_);
      } else {
        LogWarning("the certificate of before is used: {}", Message(renewed.status()));
      }
      stamp_ = std::move(stamp);
    }
    context = context_;
  }
  SslPtr ssl(SSL_new(context.get()));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket) != 1) return nullptr;
  return ssl;
}

}  // namespace longhaul::web
