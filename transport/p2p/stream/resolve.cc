#include "transport/p2p/stream/resolve.h"

#include <cstring>
#include <thread>
#include <utility>

namespace longhaul::transport::stream {
namespace {

StatusOr<SocketAddress> LookUpWith(const HostPort& address, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (code != 0) {
    return Unavailable("{}: {}", address.host, ::gai_strerror(code));
  }
  const addrinfo* const chosen = Preferred(found);
  SocketAddress result;
  std::memcpy(&result.storage, chosen->ai_addr, chosen->ai_addrlen);
  result.bytes = chosen->ai_addrlen;
  ::freeaddrinfo(found);
  return result;
}

}  // namespace

const addrinfo* Preferred(const addrinfo* found) {
  const addrinfo* chosen = found;
  while (chosen != nullptr && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
  return chosen == nullptr ? found : chosen;
}

StatusOr<SocketAddress> LookUp(const HostPort& address) {
  return LookUpWith(address, 0);
}

void Resolver::Resolve(const HostPort& address, Done done) {
  const StatusOr<SocketAddress> numeric = LookUpWith(address, AI_NUMERICHOST);
  if (numeric.ok()) {
    loop_->Post([done = std::move(done), numeric] { done(numeric); });
    return;
  }
  const std::string name = longhaul::ToString(address);
  std::vector<Done>& asked = asked_[name];
  asked.push_back(std::move(done));
  if (asked.size() > 1) return;
  std::thread([loop = loop_, weak = weak_from_this(), look_up = look_up_, address, name] {
    const StatusOr<SocketAddress> found = look_up(address);
    loop->Post([weak, name, found] {
      if (const auto self = weak.lock()) self->Finish(name, found);
    });
  }).detach();
}

void Resolver::Finish(const std::string& name, const StatusOr<SocketAddress>& found) {
  const auto node = asked_.extract(name);
  for (const Done& done : node.mapped()) done(found);
}

}  // namespace longhaul::transport::stream
