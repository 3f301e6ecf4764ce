// Parses "host:port" in the form of flags. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};

// Parses "127.0.0.1:7070", "[::1]:0" or "coordinator.example:7070". kInvalidArgument.
StatusOr<HostPort> ParseHostPort(std::string_view text);
// Returns "127.0.0.1:7070", "[::1]:7070".
std::string ToString(const HostPort& address);
// Parses "a:7070,b:7070": one or more different addresses, each for ParseHostPort. Returns them as
// written, without surrounding spaces. kInvalidArgument.
StatusOr<std::vector<std::string>> ParseAddressList(std::string_view text);
// Returns the address at which clients reach a server that listens at `listens`, if they reach its
// machine at `host`. Differs from `listens` if the server listens on all addresses. Empty:
// `listens` is not an address.
std::string ReachedAt(std::string_view listens, const std::string& host);
// Whether only this machine can reach the host: 127.0.0.0/8, ::1 and "localhost".
bool IsLoopback(std::string_view host);
// Whether the host is a numeric address outside the public internet: loopback, link-local, RFC
// 1918, 100.64.0.0/10 (VPNs, carriers), fc00::/7.
bool IsPrivate(std::string_view host);

}  // namespace longhaul
