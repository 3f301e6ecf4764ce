#include "transport/collective/core/unix_socket.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace longhaul::collective::internal {
namespace {

constexpr int kBacklog = 128;
// How often a full queue is tried.
constexpr absl::Duration kRetry = absl::Milliseconds(5);

struct Address {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

Address AddressOf(std::string_view name) {
  Address result;
  LH_CHECK(name.size() < sizeof(result.address.sun_path), "a socket's name has {} bytes",
           name.size());
  result.address.sun_family = AF_UNIX;
  // Abstract: the name begins behind a zero.
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

const sockaddr* Generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.address);
}

StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return FromErrno("no Unix socket could be made", errno);
  return fd;
}

}  // namespace

StatusOr<UniqueFd> ListenUnix(std::string_view name) {
  LH_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  const Address address = AddressOf(name);
  if (::bind(fd.get(), Generic(address), address.bytes) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return FromErrno(fmt::format("cannot listen on the abstract Unix socket {}", name), errno);
  }
  return fd;
}

StatusOr<UniqueFd> ConnectUnix(std::string_view name, Deadline deadline) {
  LH_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  const Address address = AddressOf(name);
  while (::connect(fd.get(), Generic(address), address.bytes) != 0) {
    if (errno == ECONNREFUSED) {
      return Unavailable(
          "nobody listens on the abstract Unix socket {}: its process has ended, or is in another "
          "network namespace",
          name);
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return FromErrno(fmt::format("cannot connect to the abstract Unix socket {}", name), errno);
    }
    if (deadline.Expired()) {
      return DeadlineExceeded("the listener of the abstract Unix socket {} took no connection",
                              name);
    }
    ::poll(nullptr, 0, PollTimeout(Deadline::After(std::min(kRetry, deadline.Remaining()))));
  }
  return fd;
}

StatusOr<UniqueFd> AcceptUnix(const UniqueFd& listener) {
  UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd || errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return fd;
  return FromErrno("no connection could be accepted", errno);
}

PeerProcess PeerOf(const UniqueFd& socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return {};
  return {credentials.pid, credentials.uid == ::geteuid()};
}

std::string NameProcess(int64_t process) {
  return process > 0 ? fmt::format("its process {}", process) : "its process";
}

StatusOr<WakeFd> WakeFd::Create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return FromErrno("no eventfd could be made", errno);
  return WakeFd(std::move(fd));
}

void WakeFd::Wake() const {
  const uint64_t one = 1;
  // It fails only where the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

void WakeFd::Clear() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
}

int PollTimeout(Deadline deadline) {
  const absl::Duration remaining = std::min(deadline.Remaining(), absl::Hours(1));
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(remaining, absl::Milliseconds(1))));
}

bool AwaitReady(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, PollTimeout(deadline));
    if (ready > 0) return true;
    if (deadline.Expired()) return false;
  }
}

}  // namespace longhaul::collective::internal
