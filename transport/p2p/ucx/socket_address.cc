#include "transport/p2p/ucx/socket_address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"

namespace longhaul::transport::ucx {
namespace {

constexpr absl::Duration kProbeLimit = absl::Milliseconds(500);

struct FreeAddrinfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
struct FreeIfaddrs {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

socklen_t SizeOf(const sockaddr* address) {
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool SameHost(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

// 127.0.0.0/8 belongs to the loopback interface as a whole; only 127.0.0.1 is listed.
bool IsLoopback4(const sockaddr* a) {
  return a->sa_family == AF_INET &&
         (ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr) >> 24) == 127;
}

bool IsWildcard(const sockaddr* a) {
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr);
}

std::string HostText(const sockaddr* a) {
  char text[INET6_ADDRSTRLEN] = "";
  if (a->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a)->sin_addr, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr, text, sizeof(text));
  }
  return text;
}

Status ConnectFailure(int error) {
  // What a person can do about it is in the words of the operating system.
  return absl::UnavailableError(error == 0 ? "the peer ended the connection"
                                           : fmt::format("connect: {}", std::strerror(error)));
}

}  // namespace

StatusOr<SocketAddress> ParseAddress(const std::string& text, bool resolve) {
  const auto bad = [&] {
    return InvalidArgument("expected an address like 10.0.0.2:7000 or [fd00::1]:7000, got \"{}\"",
                           text);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad();
  }
  const std::string port = text.substr(colon + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || host.empty()) return bad();
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (resolve ? 0 : AI_NUMERICHOST);
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, FreeAddrinfo> owner(list);
  if (code != 0 || list == nullptr) {
    if (!resolve) return bad();
    return Unavailable("the name {} does not resolve: {}", host, gai_strerror(code));
  }
  SocketAddress address;
  std::memcpy(&address.storage, list->ai_addr, list->ai_addrlen);
  address.size = list->ai_addrlen;
  return address;
}

std::string ToString(const SocketAddress& address) {
  const sockaddr* a = address.get();
  if (a->sa_family == AF_INET6) {
    return fmt::format("[{}]:{}", HostText(a),
                       ntohs(reinterpret_cast<const sockaddr_in6*>(a)->sin6_port));
  }
  return fmt::format("{}:{}", HostText(a),
                     ntohs(reinterpret_cast<const sockaddr_in*>(a)->sin_port));
}

Status CheckFamily(const SocketAddress& address) {
  if (address.get()->sa_family != AF_INET6) return absl::OkStatus();
  return InvalidArgument(
      "UCX does not work over IPv6, and {} is such an address; take transport tcp",
      ToString(address));
}

StatusOr<std::string> InterfaceOf(const SocketAddress& address) {
  if (IsWildcard(address.get())) {
    return InvalidArgument(
        "{} names every interface; name the one address of the network that the data "
        "shall use",
        ToString(address));
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return FromErrno("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, FreeIfaddrs> owner(list);
  std::string known;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr ||
        (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) {
      continue;
    }
    if (SameHost(i->ifa_addr, address.get()) ||
        (IsLoopback4(i->ifa_addr) && IsLoopback4(address.get()))) {
      // UCX passes over an interface without a carrier and then says "No such device".
      if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_RUNNING) == 0) {
        return Unavailable("the interface {}, which has {}, is down or has no carrier (yet)",
                           i->ifa_name, HostText(address.get()));
      }
      return std::string(i->ifa_name);
    }
    known +=
        fmt::format("{}{} ({})", known.empty() ? "" : ", ", HostText(i->ifa_addr), i->ifa_name);
  }
  return FailedPrecondition("{} is not an address of this host; it has {}", HostText(address.get()),
                            known);
}

Status CheckBind(const SocketAddress& address) {
  const UniqueFd probe(socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) return FromErrno("cannot make a socket", errno);
  const int on = 1;
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(probe.get(), address.get(), address.size) == 0 && listen(probe.get(), 1) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  if (error == EADDRINUSE) {
    return AlreadyExists(
        "cannot listen at {}: the port is in use; choose another one, or 0 for any",
        ToString(address));
  }
  return FromErrno(fmt::format("cannot listen at {}", ToString(address)), error);
}

void FindConnectError(const std::shared_ptr<EventLoop>& loop, const SocketAddress& address,
                      std::function<void(Status)> done) {
  const auto probe = std::make_shared<UniqueFd>(
      socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto report = [loop, done = std::move(done)](int error) {
    loop->Post([done, error] { done(ConnectFailure(error)); });
  };
  if (!*probe) return report(errno);
  if (connect(probe->get(), address.get(), SizeOf(address.get())) == 0) return report(0);
  if (errno != EINPROGRESS) return report(errno);
  const auto timer = std::make_shared<EventLoop::TimerId>();
  // Whichever comes first unwatches the socket, which lets go of both closures.
  *timer = loop->AddTimer(Now() + kProbeLimit, [loop, probe, report] {
    loop->Unwatch(probe->get());
    report(ETIMEDOUT);
  });
  const Status watched =
      loop->Watch(probe->get(), EPOLLOUT, [loop, probe, timer, report](uint32_t) {
        int error = 0;
        socklen_t size = sizeof(error);
        getsockopt(probe->get(), SOL_SOCKET, SO_ERROR, &error, &size);
        loop->CancelTimer(*timer);
        loop->Unwatch(probe->get());
        report(error);
      });
  if (!watched.ok()) {
    loop->CancelTimer(*timer);
    report(EIO);
  }
}

}  // namespace longhaul::transport::ucx
