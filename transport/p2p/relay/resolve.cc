#include "transport/p2p/relay/resolve.h"

#include <fmt/core.h>
#include <netdb.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace longhaul::transport::relay {
namespace {

StatusOr<SocketAddress> LookUp(const HostPort& address, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (code != 0) {
    return absl::UnavailableError(fmt::format("{}: {}", address.host, ::gai_strerror(code)));
  }
  SocketAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.bytes = found->ai_addrlen;
  ::freeaddrinfo(found);
  return result;
}

}  // namespace

void Resolve(const std::shared_ptr<EventLoop>& loop, const HostPort& address,
             std::function<void(StatusOr<SocketAddress>)> done) {
  StatusOr<SocketAddress> numeric = LookUp(address, AI_NUMERICHOST);
  if (numeric.ok()) {
    loop->Post([done = std::move(done), numeric = *numeric] { done(numeric); });
    return;
  }
  std::thread([loop, address, done = std::move(done)]() mutable {
    // What `done` holds goes on the loop.
    loop->Post([done = std::move(done), found = LookUp(address, 0)] { done(found); });
  }).detach();
}

}  // namespace longhaul::transport::relay
