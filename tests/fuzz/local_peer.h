// Connections to and from this process over the loopback interface, for fuzz bodies whose target
// only speaks over sockets. A failure aborts the process.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace longhaul::fuzz {

inline sockaddr_in LocalAddress(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

inline UniqueFd ConnectLocally(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = LocalAddress(port);
  // Ends with a reset, so that ports of earlier inputs do not pile up in TIME_WAIT.
  const linger abort{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    std::abort();
  }
  return fd;
}

inline UniqueFd ListenLocally(uint16_t* port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = LocalAddress(0);
  socklen_t bytes = sizeof(address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      ::listen(fd.get(), 64) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    std::abort();
  }
  *port = ntohs(address.sin_port);
  return fd;
}

// Sends all of it, or as much as the other side takes.
inline void SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

// Reads until the other side ends, `enough` bytes came, or nothing came for `silence_ms`.
inline std::string ReadUntilEnd(int fd, size_t enough, int silence_ms) {
  std::string got;
  char piece[4096];
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  while (got.size() < enough && ::poll(&wanted, 1, silence_ms) == 1) {
    const ssize_t bytes = ::recv(fd, piece, sizeof(piece), 0);
    if (bytes <= 0) break;
    got.append(piece, static_cast<size_t>(bytes));
  }
  return got;
}

}  // namespace longhaul::fuzz
