// Parses and formats addresses, "host:port", as flags have them. Pure functions.
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

// Parses "127.0.0.1:7070", "[::1]:0" or "coordinator.example:7070". Does not look up names.
// kInvalidArgument: not such a text.
StatusOr<HostPort> ParseHostPort(std::string_view text);
// Returns "127.0.0.1:7070" or "[::1]:7070".
std::string ToString(const HostPort& address);
// Parses one or more addresses, separated by commas: "a:7070,b:7070". Returns them as written,
// without surrounding spaces. kInvalidArgument: ParseHostPort refuses one, or one occurs twice.
StatusOr<std::vector<std::string>> ParseAddressList(std::string_view text);
// Returns the address at which clients reach a server that listens at `listens`. If the server
// listens at all addresses of its machine, this is the port of `listens` at `host`, where clients
// reach the machine. Else it is `listens`. Returns "" if `listens` is not an address.
std::string ReachedAt(std::string_view listens, const std::string& host);
// Whether only this machine can reach `host`: 127.0.0.0/8, ::1 or "localhost".
bool IsLoopback(std::string_view host);
// Whether `host` is not on the public internet: a numeric address that is loopback, link-local, of
// RFC 1918, 100.64.0.0/10 (VPNs, carriers) or fc00::/7, or "localhost".
bool IsPrivate(std::string_view host);

}  // namespace longhaul
