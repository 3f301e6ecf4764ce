#include "proto/member/authority_of.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/address.h"
#include "base/unique_fd.h"
#include "proto/identity/certificate.h"
#include "proto/identity/openssl.h"

namespace longhaul {
namespace {

using Context = std::unique_ptr<SSL_CTX, openssl::Free<&SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, openssl::Free<&SSL_free>>;

struct FreeAddrinfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

// False: not by the deadline.
bool WaitFor(int fd, short events, Deadline deadline) {
  pollfd one{.fd = fd, .events = events, .revents = 0};
  const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline.Remaining()));
  return ::poll(&one, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) == 1;
}

StatusOr<UniqueFd> Dial(const std::string& address, Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(parsed.host.c_str(), fmt::format("{}", parsed.port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, FreeAddrinfo> owner(found);
  if (code != 0) return Unavailable("{}: {}", address, gai_strerror(code));
  std::string why = "no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd fd(socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return FromErrno("cannot make a socket", errno);
    int error = connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      if (!WaitFor(fd.get(), POLLOUT, deadline)) {
        error = ETIMEDOUT;
      } else {
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error == 0) return fd;
    why = std::strerror(error);
  }
  return Unavailable("{}: {}", address, why);
}

Status Handshake(SSL* session, const std::string& address, Deadline deadline) {
  while (true) {
    ERR_clear_error();
    const int result = SSL_connect(session);
    if (result == 1) return absl::OkStatus();
    const int what = SSL_get_error(session, result);
    if (what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) {
      const short events = what == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      if (WaitFor(SSL_get_fd(session), events, deadline)) continue;
      return Unavailable("{} does not answer in time", address);
    }
    const bool closed = what != SSL_ERROR_SSL;
    ERR_clear_error();
    if (closed) {
      return Unavailable(
          "{} ended the connection before it said who it is; does it serve without TLS "
          "(--insecure), or is it another program?",
          address);
    }
    return Unauthenticated(
        "{} does not speak TLS 1.3, and nothing is said to it without; is it a coordinator that "
        "was started with --insecure, or another program?",
        address);
  }
}

StatusOr<std::string> CheckedChain(SSL* session, const std::string& address,
                                   const std::string& fingerprint) {
  const STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(session);
  const int count = chain == nullptr ? 0 : sk_X509_num(chain);
  std::string got = "none";
  for (int i = 1; i < count; ++i) {
    X509* const authority = sk_X509_value(chain, i);
    LH_ASSIGN_OR_RETURN(std::string pem, openssl::ToPem(authority));
    LH_ASSIGN_OR_RETURN(got, Fingerprint(pem));
    if (got != fingerprint) continue;
    EVP_PKEY* const key = X509_get0_pubkey(authority);
    if (key != nullptr && X509_check_ca(authority) == 1 &&
        X509_verify(sk_X509_value(chain, 0), key) == 1) {
      return pem;
    }
    ERR_clear_error();
    return Unauthenticated("{} shows a certificate that its authority has not signed", address);
  }
  return Unauthenticated(
      "the coordinator at {} has another authority than the join token: expected the fingerprint "
      "{}, got {}; is the address right, and the token that coordinator's?",
      address, fingerprint, got);
}

}  // namespace

StatusOr<std::string> AuthorityOf(const std::string& address, const std::string& fingerprint,
                                  Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const UniqueFd fd, Dial(address, deadline));
  const Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1) {
    return openssl::Failed("TLS");
  }
  // The chain is looked at below: who dials does not know the authority yet.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const Session session(SSL_new(context.get()));
  if (session == nullptr || SSL_set_fd(session.get(), fd.get()) != 1) {
    return openssl::Failed("TLS");
  }
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(session.get(), kHttp2, sizeof(kHttp2));
  LH_RETURN_IF_ERROR(Handshake(session.get(), address, deadline));
  return CheckedChain(session.get(), address, fingerprint);
}

}  // namespace longhaul
