// Parses and formats addresses of the form "host:port". Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

struct HostPort {
  std::string host;  // a name or an IP address, without brackets
  uint16_t port = 0;
};

// Parses "127.0.0.1:7070", "[::1]:0" or "coordinator.example:7070". Does not look up names. Port 0
// is valid.
// kInvalidArgument: the text is not host:port.
StatusOr<HostPort> ParseHostPort(std::string_view text);
// Returns "127.0.0.1:7070" or "[::1]:7070".
std::string ToString(const HostPort& address);
// Parses one or more addresses, separated by commas: "a:7070,b:7070". Returns them as written,
// without surrounding spaces. kInvalidArgument: an address is malformed or occurs twice.
StatusOr<std::vector<std::string>> ParseAddressList(std::string_view text);
// Returns the address that clients dial to reach a server that listens at `listens`: usually
// `listens` itself. If the server listens at 0.0.0.0 or ::, the result has `host` as its host.
// Returns "" if `listens` is not host:port.
std::string ReachedAt(std::string_view listens, const std::string& host);
// True if only this machine can reach `host`: 127.0.0.0/8, ::1 or "localhost". False for all other
// names, which are not looked up.
bool IsLoopback(std::string_view host);
// True if `host` is "localhost", or a numeric address outside the public internet: loopback,
// link-local, RFC 1918, 100.64.0.0/10 (VPNs, carriers) or fc00::/7. False for all other names.
bool IsPrivate(std::string_view host);

}  // namespace longhaul
