#include "base/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace longhaul {

StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const auto refuse = [&](std::string_view why) -> Status {
    return InvalidArgument("address '{}': expected host:port (127.0.0.1:7070, [::1]:7070), {}",
                           text, why);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("but it has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse("and an IPv6 address stands in brackets");
  }
  if (host.empty()) return refuse("but it has no host");
  // Written and read again, such a host would be another one.
  if (host.find_first_of("[]") != std::string_view::npos) {
    return refuse("and brackets stand around an IPv6 address alone");
  }
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size()) {
    return refuse(fmt::format("but '{}' is no port (0 to 65535)", port_text));
  }
  return HostPort{std::string(host), port};
}

std::string ToString(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

StatusOr<std::vector<std::string>> ParseAddressList(std::string_view text) {
  std::vector<std::string> addresses;
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ',');
  for (const std::string& part : parts) {
    const std::string address(absl::StripAsciiWhitespace(part));
    LH_RETURN_IF_ERROR(ParseHostPort(address).status());
    if (std::ranges::find(addresses, address) != addresses.end()) {
      return InvalidArgument(
          "address list '{}': expected each address once, but {} stands there twice", text,
          address);
    }
    addresses.push_back(address);
  }
  return addresses;
}

std::string ReachedAt(std::string_view listens, const std::string& host) {
  StatusOr<HostPort> address = ParseHostPort(listens);
  if (!address.ok()) return "";
  if (address->host == "0.0.0.0" || address->host == "::") address->host = host;
  return ToString(*address);
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return false;
}

bool IsPrivate(std::string_view host) {
  if (IsLoopback(host)) return true;
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    const uint32_t address = ntohl(v4.s_addr);
    const auto in = [address](uint32_t network, int bits) {
      return (address ^ network) >> (32 - bits) == 0;
    };
    return in(0x0a000000, 8) || in(0xac100000, 12) || in(0xc0a80000, 16) || in(0x64400000, 10) ||
           in(0xa9fe0000, 16);
  }
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  return (v6.s6_addr[0] & 0xfe) == 0xfc || IN6_IS_ADDR_LINKLOCAL(&v6) != 0;
}

}  // namespace longhaul
