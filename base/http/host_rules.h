// Which servers a program may reach on the word of a stranger. An address that a stranger wrote
// must not make this machine ask its own services, those of its local network, or a cloud's
// metadata server. Two checks guard against that: CheckUrl looks at the name in each address and in
// each redirect, and MayConnect looks at the IP address that a socket is about to connect
// to.
//
// Pure functions: any thread may call them.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::http {

// A block of IP addresses, such as 10.1.0.0/16 or fd00::/8.
struct IpNetwork {
  std::array<uint8_t, 16> first = {};  // of IPv4: ::ffff:0:0/96 before the address
  int bits = 128;                      // of `first` that all its addresses have
  friend bool operator==(const IpNetwork&, const IpNetwork&) = default;
};
// Parses ADDRESS/BITS, or one address. kInvalidArgument: it is neither.
StatusOr<IpNetwork> ParseIpNetwork(std::string_view text);

// Patterns of hosts: "example.org" is this host, "*.example.org" is every host below it. A later
// "*", as in "s3.*.example.org", stands for one label. "*" alone is every host with every port. A
// pattern without a port allows the scheme's own port (443, or 80 for http). "example.org:9000"
// allows that port, "example.org:*" allows every port.
struct HostRules {
  // The hosts that may be asked. Empty: every host.
  std::vector<std::string> hosts = {};
  // Hosts of one's own network. They may have a private, link-local or loopback IP address, and may
  // speak http, which everybody on the way can read and change. They may be asked although `hosts`
  // does not list them.
  std::vector<std::string> local_hosts = {};
  // Hosts that may be asked although `hosts` does not list them, also by http. They must have a
  // public IP address or one of `networks`: whoever owns a name in DNS says where it leads.
  std::vector<std::string> named_hosts = {};
  std::vector<IpNetwork> networks = {};
  // Whether HTTPS_PROXY and its like are obeyed. The proxy then looks names up, so nothing checks
  // the IP addresses behind them.
  bool environment_proxy = false;

  // For addresses that this machine's user wrote: every host, also local ones, and http.
  static HostRules Trusting();
  // Allows what `pattern` names. A name joins `named_hosts`. An IP address joins `local_hosts`,
  // because nobody can make it lead elsewhere.
  void Allow(const std::string& pattern);
};

// A web address in its normal form.
struct Url {
  std::string text;    // without a fragment
  std::string scheme;  // "https" or "http"
  std::string host;    // in lower case; an IPv6 address has its brackets
  uint16_t port = 0;

  // "https://example.org:443". Secrets for one origin must not go to another one.
  std::string origin() const;
};

// Parses an absolute web address. kInvalidArgument: the text is none, is longer than 64 KiB, or
// names a user.
StatusOr<Url> ParseUrl(std::string_view text);
// Returns the target of the redirect `location`, which may be relative to `base`.
StatusOr<Url> FollowUrl(const Url& base, std::string_view location);
// kPermissionDenied: the rules do not allow `url`; the message says which rule to change.
Status CheckUrl(const Url& url, const HostRules& rules);
// Whether one of the patterns matches the host and the port of `url`.
bool MatchesHost(const Url& url, const std::vector<std::string>& patterns);

// Whether the address is one of the public internet. False for everything else: loopback, private,
// link-local, carrier, multicast, reserved and unknown kinds of addresses; also where an IPv6
// address stands for such an IPv4 address.
bool IsPublic(const sockaddr& address);

// Whether a socket for `url`, which CheckUrl allows, may connect to `address`.
bool MayConnect(const Url& url, const sockaddr& address, const HostRules& rules);

// Returns `url` for messages and logs. Leaves the query out, because queries of signed addresses
// are secrets.
std::string ShownUrl(std::string_view url);

}  // namespace longhaul::http
