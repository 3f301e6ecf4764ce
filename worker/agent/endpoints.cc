#include "worker/agent/endpoints.h"

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/address.h"
#include "base/unique_fd.h"

namespace longhaul::worker {
namespace {

// The address that packets to `peer` leave from, by the kernel's routes; nothing is sent. Empty:
// there is no way.
std::string LocalAddressTowards(const sockaddr_storage& peer, socklen_t peer_bytes) {
  const UniqueFd fd(::socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return "";
  sockaddr_storage own{};
  socklen_t own_bytes = sizeof(own);
  char host[NI_MAXHOST] = {};
  const bool known =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&peer), peer_bytes) == 0 &&
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), own_bytes, host, sizeof(host), nullptr,
                    0, NI_NUMERICHOST) == 0;
  return known ? host : "";
}

struct Route {
  sockaddr_storage peer{};
  socklen_t peer_bytes = 0;
  std::string own;
};

// The first address of `coordinator` (host:port) that there is a way to.
std::optional<Route> RouteTo(const std::string& coordinator) {
  const auto address = ParseHostPort(coordinator);
  if (!address.ok()) return std::nullopt;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address->host.c_str(), std::to_string(address->port).c_str(), &wanted,
                    &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  for (; found != nullptr; found = found->ai_next) {
    Route route;
    std::memcpy(&route.peer, found->ai_addr, found->ai_addrlen);
    route.peer_bytes = found->ai_addrlen;
    route.own = LocalAddressTowards(route.peer, route.peer_bytes);
    if (!route.own.empty()) return route;
  }
  return std::nullopt;
}

bool IsOurs(const std::string& address) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  wanted.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), nullptr, &wanted, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  const UniqueFd fd(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return !fd || ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 || errno != EADDRNOTAVAIL;
}

}  // namespace

std::string OwnAddressTowards(const std::string& coordinator) {
  std::optional<Route> route = RouteTo(coordinator);
  return route ? std::move(route->own) : "";
}

std::string OwnAddressTowards(const std::vector<std::string>& coordinators) {
  for (const std::string& coordinator : coordinators) {
    if (std::string own = OwnAddressTowards(coordinator); !own.empty()) return own;
  }
  return "";
}

Endpoints::Endpoints(std::map<std::string, std::string> listening, std::string advertised,
                     std::vector<std::string> advertise, std::function<std::string()> coordinator)
    : listening_(std::move(listening)),
      advertised_(std::move(advertised)),
      advertise_(std::move(advertise)),
      coordinator_(std::move(coordinator)) {}

std::vector<v1::DataEndpoint> Endpoints::Find() {
  if (std::optional<Route> route = RouteTo(coordinator_())) {
    route_ = route->peer;
    route_bytes_ = route->peer_bytes;
    own_ = std::move(route->own);
  }
  std::vector<v1::DataEndpoint> endpoints;
  for (const auto& [transport, address] : listening_) {
    v1::DataEndpoint& endpoint = endpoints.emplace_back();
    endpoint.set_transport(transport);
    if (address.empty()) continue;
    if (transport != advertised_ || advertise_.empty()) {
      endpoint.add_addresses(address);
      continue;
    }
    for (const std::string& one : advertise_) {
      const auto listens = ParseHostPort(address);
      if (one != kAdvertiseAuto) {
        endpoint.add_addresses(one);
      } else if (!own_.empty() && listens.ok()) {
        endpoint.add_addresses(ToString(HostPort{own_, listens->port}));
      }
    }
  }
  return endpoints;
}

bool Endpoints::Moved() const {
  if (route_bytes_ == 0) return false;
  const std::string own = LocalAddressTowards(route_, route_bytes_);
  return !own.empty() && own != own_ && !IsOurs(own_);
}

}  // namespace longhaul::worker
