// "host:port" as flags have it. Pure functions.
#ifndef LONGHAUL_BASE_ADDRESS_H_
#define LONGHAUL_BASE_ADDRESS_H_

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

// "127.0.0.1:7070", "[::1]:0", "coordinator.example:7070". kInvalidArgument.
StatusOr<HostPort> ParseHostPort(std::string_view text);
// "127.0.0.1:7070", "[::1]:7070".
std::string ToString(const HostPort& address);
// "a:7070,b:7070": one address or several, each of them as ParseHostPort takes it and once. They
// come back as they are written, without the spaces around them. kInvalidArgument.
StatusOr<std::vector<std::string>> ParseAddressList(std::string_view text);
// Where one that listens at `listens`, a host:port, is reached by who reaches its machine at
// `host`: there, where it listens at every address. Empty: `listens` is no address.
std::string ReachedAt(std::string_view listens, const std::string& host);
// 127.0.0.0/8, ::1 and "localhost": only this machine can reach them.
bool IsLoopback(std::string_view host);
// A numeric address that no open network has: loopback, link-local, RFC 1918, 100.64.0.0/10 (VPNs,
// carriers), fc00::/7.
bool IsPrivate(std::string_view host);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_ADDRESS_H_
