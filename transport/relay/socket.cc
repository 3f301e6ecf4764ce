#include "transport/relay/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace longhaul::relay {
namespace {

constexpr int kNotSentBytes = 64 << 10;

void Set(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

}  // namespace

void PrepareSocket(int fd, const KeepAlive& keep_alive) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentBytes);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetKeepAlive(fd, keep_alive);
}

void SetKeepAlive(int fd, const KeepAlive& keep_alive) {
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, keep_alive.idle_s);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, keep_alive.interval_s);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, keep_alive.asks);
}

bool WouldBlock() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace longhaul::relay
