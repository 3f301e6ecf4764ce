#include "base/http/host_rules.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/printable.h"

namespace longhaul::http {
namespace {

constexpr size_t kLongestUrl = 64 << 10;

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlHandle = std::unique_ptr<CURLU, UrlDeleter>;

std::optional<std::string> PartOf(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return std::nullopt;
  std::string copy(text);
  curl_free(text);
  return copy;
}

StatusOr<Url> Read(CURLU* handle, std::string_view text) {
  const auto expected = [&](std::string_view what) {
    return InvalidArgument("expected {}, got '{}'", what, Printable(ShownUrl(text), 200));
  };
  if (PartOf(handle, CURLUPART_USER) || PartOf(handle, CURLUPART_PASSWORD)) {
    // The text has a password in it.
    return InvalidArgument("expected an address without a user; pass credentials apart from it");
  }
  if (curl_url_set(handle, CURLUPART_FRAGMENT, nullptr, 0) != CURLUE_OK) {
    return expected("an address such as https://host/folder");
  }
  Url url;
  url.scheme = PartOf(handle, CURLUPART_SCHEME).value_or("");
  url.host = PartOf(handle, CURLUPART_HOST).value_or("");
  const std::string port = PartOf(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT).value_or("");
  url.text = PartOf(handle, CURLUPART_URL).value_or("");
  std::ranges::transform(url.host, url.host.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  while (url.host.ends_with('.')) url.host.pop_back();
  std::from_chars(port.data(), port.data() + port.size(), url.port);
  if ((url.scheme != "https" && url.scheme != "http") || url.host.empty() || url.port == 0 ||
      url.text.empty()) {
    return expected("an address such as https://host/folder");
  }
  // Escapes in a host are resolved here; read once more, the address would be another one or none.
  if (std::ranges::any_of(url.host, [](char c) { return (c >= 0 && c <= ' ') || c == 0x7f; })) {
    return expected("a host without spaces and control characters");
  }
  return url;
}

StatusOr<Url> Parse(CURLU* handle, std::string_view text, unsigned flags = 0) {
  if (handle == nullptr) return absl::InternalError("libcurl has no memory for an address");
  if (text.size() > kLongestUrl) {
    return InvalidArgument("expected an address of at most {} bytes, got {} bytes", kLongestUrl,
                           text.size());
  }
  const std::string copy(text);
  if (copy.size() != std::strlen(copy.c_str()) ||
      curl_url_set(handle, CURLUPART_URL, copy.c_str(),
                   CURLU_NON_SUPPORT_SCHEME | CURLU_PATH_AS_IS | flags) != CURLUE_OK) {
    return InvalidArgument("expected an address such as https://host/folder, got '{}'",
                           Printable(ShownUrl(text), 200));
  }
  LH_ASSIGN_OR_RETURN(Url url, Read(handle, text));
  // libcurl resolves escapes in a host after it has looked for an IPv4 address: "0.2.0x7f.%35" is a
  // name at the first reading and 0.2.127.5 at the second.
  const UrlHandle again(curl_url());
  if (again == nullptr ||
      curl_url_set(again.get(), CURLUPART_URL, url.text.c_str(),
                   CURLU_NON_SUPPORT_SCHEME | CURLU_PATH_AS_IS) != CURLUE_OK ||
      PartOf(again.get(), CURLUPART_URL) != url.text) {
    return InvalidArgument("expected a host without escapes such as %35, got '{}'",
                           Printable(ShownUrl(text), 200));
  }
  return url;
}

// Takes the last label from a name: "org" of "example.org".
std::string_view TakeLabel(std::string_view* name) {
  const size_t dot = name->rfind('.');
  const std::string_view label = name->substr(dot == std::string_view::npos ? 0 : dot + 1);
  name->remove_suffix(std::min(name->size(), label.size() + 1));
  return label;
}

bool MatchesName(std::string_view host, std::string_view name) {
  // Brackets of an IPv6 address hold no labels.
  if (name.find('*') == std::string_view::npos) return host == name;
  while (name != "*") {
    if (name.empty() || host.empty()) return name.empty() && host.empty();
    const std::string_view label = TakeLabel(&host), expected = TakeLabel(&name);
    if (label.empty() || (expected != "*" && expected != label)) return false;
  }
  return !host.empty();
}

bool Matches(const Url& url, std::string_view pattern) {
  if (pattern == "*") return true;
  // The last colon, but none inside the brackets of an IPv6 address.
  const size_t colon = pattern.rfind(':');
  std::string_view name = pattern, port;
  if (colon != std::string_view::npos && pattern.find(']', colon) == std::string_view::npos) {
    name = pattern.substr(0, colon);
    port = pattern.substr(colon + 1);
  }
  const uint16_t usual = url.scheme == "https" ? 443 : 80;
  if (port.empty() ? url.port != usual : port != "*" && port != fmt::to_string(url.port)) {
    return false;
  }
  return MatchesName(url.host, name);
}

struct Block {
  uint32_t first;
  int bits;
};
// Everything in IANA's registry of special IPv4 addresses, and multicast.
constexpr Block kSpecial4[] = {
    {0x00000000, 8},   // this network
    {0x0A000000, 8},   // private
    {0x64400000, 10},  // carriers' translation
    {0x7F000000, 8},   // loopback
    {0xA9FE0000, 16},  // link-local, metadata servers of clouds
    {0xAC100000, 12},  // private
    {0xC0000000, 24},  // protocols
    {0xC0000200, 24},  // documentation
    {0xC0586300, 24},  // relays of 6to4
    {0xC0A80000, 16},  // private
    {0xC6120000, 15},  // benchmarks
    {0xC6336400, 24},  // documentation
    {0xCB007100, 24},  // documentation
    {0xE0000000, 4},   // multicast
    {0xF0000000, 4},   // reserved, broadcast
};

bool IsPublic4(uint32_t address) {
  return std::ranges::none_of(kSpecial4, [&](const Block& block) {
    return (address ^ block.first) >> (32 - block.bits) == 0;
  });
}

uint32_t Word(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

bool IsPublic6(std::span<const uint8_t, 16> bytes) {
  // 64:ff9b::/96 is an IPv4 address behind a translator (NAT64).
  constexpr std::array<uint8_t, 12> kTranslated = {0, 0x64, 0xff, 0x9b};
  if (std::ranges::equal(bytes.first(12), kTranslated)) return IsPublic4(Word(bytes.subspan(12)));
  // Only 2000::/3 is given out; ::ffff:0:0/96 (IPv4) and all local kinds are outside.
  if (bytes[0] >> 5 != 1) {
    constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::ranges::equal(bytes.first(12), kMapped) && IsPublic4(Word(bytes.subspan(12)));
  }
  const uint32_t first = Word(bytes);
  if (first >> 16 == 0x2002) return IsPublic4(Word(bytes.subspan(2)));  // 6to4
  if (first >> 9 == 0x20010000 >> 9) return false;                      // 2001::/23, protocols
  if (first == 0x20010db8) return false;                                // documentation
  return first >> 12 != 0x3fff0;                                        // documentation
}

std::optional<std::array<uint8_t, 16>> BytesOf(const sockaddr& address) {
  std::array<uint8_t, 16> bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (address.sa_family == AF_INET) {
    sockaddr_in name{};
    std::memcpy(&name, &address, sizeof(name));
    std::memcpy(bytes.data() + 12, &name.sin_addr.s_addr, 4);
    return bytes;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 name{};
  std::memcpy(&name, &address, sizeof(name));
  std::memcpy(bytes.data(), name.sin6_addr.s6_addr, bytes.size());
  return bytes;
}

bool IsInside(const std::array<uint8_t, 16>& bytes, const IpNetwork& network) {
  for (int bit = 0; bit < network.bits; ++bit) {
    const size_t at = static_cast<size_t>(bit) / 8;
    if (((bytes[at] ^ network.first[at]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

// The host of a pattern, without its port.
std::string_view NameOf(std::string_view pattern) {
  const size_t colon = pattern.rfind(':');
  if (colon == std::string_view::npos || pattern.find(']', colon) != std::string_view::npos) {
    return pattern;
  }
  return pattern.substr(0, colon);
}

bool IsIpAddress(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string text(host);
  std::array<uint8_t, 16> bytes{};
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

}  // namespace

StatusOr<IpNetwork> ParseIpNetwork(std::string_view text) {
  const auto wrong = [&] {
    return InvalidArgument("expected a network such as 10.1.0.0/16 or fd00::/8, got '{}'",
                           Printable(text, 100));
  };
  const size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  IpNetwork network;
  const bool is_4 = address.find(':') == std::string::npos;
  if (is_4) network.first = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const int most = is_4 ? 32 : 128;
  if (::inet_pton(is_4 ? AF_INET : AF_INET6, address.c_str(),
                  network.first.data() + (is_4 ? 12 : 0)) != 1) {
    return wrong();
  }
  int bits = most;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (digits.empty() || read.ec != std::errc() || read.ptr != digits.data() + digits.size() ||
        bits < 0 || bits > most) {
      return wrong();
    }
  }
  network.bits = bits + 128 - most;
  return network;
}

void HostRules::Allow(const std::string& pattern) {
  (IsIpAddress(NameOf(pattern)) ? local_hosts : named_hosts).push_back(pattern);
}

HostRules HostRules::Trusting() {
  HostRules rules;
  rules.local_hosts = {"*"};
  rules.environment_proxy = true;
  return rules;
}

std::string Url::origin() const {
  return fmt::format("{}://{}:{}", scheme, host, port);
}

StatusOr<Url> ParseUrl(std::string_view text) {
  const UrlHandle handle(curl_url());
  return Parse(handle.get(), text);
}

StatusOr<Url> FollowUrl(const Url& base, std::string_view location) {
  const UrlHandle handle(curl_url());
  LH_RETURN_IF_ERROR(Parse(handle.get(), base.text).status());
  // Relative to what the handle holds. Some servers do not escape spaces.
  return Parse(handle.get(), location, CURLU_URLENCODE);
}

bool MatchesHost(const Url& url, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return Matches(url, pattern); });
}

Status CheckUrl(const Url& url, const HostRules& rules) {
  if (MatchesHost(url, rules.local_hosts) || MatchesHost(url, rules.named_hosts)) {
    return absl::OkStatus();
  }
  if (url.scheme != "https") {
    return PermissionDenied(
        "expected https, got {}; everybody on the way can read and change http, so only hosts that "
        "are allowed by name may speak it",
        Printable(ShownUrl(url.text), 200));
  }
  if (rules.hosts.empty() || MatchesHost(url, rules.hosts)) return absl::OkStatus();
  return PermissionDenied(
      "{}:{} is not among the allowed hosts ({}); allow it, or use another address", url.host,
      url.port, fmt::join(rules.hosts, ", "));
}

bool IsPublic(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in name{};
    std::memcpy(&name, &address, sizeof(name));
    return IsPublic4(ntohl(name.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 name{};
    std::memcpy(&name, &address, sizeof(name));
    return IsPublic6(std::span<const uint8_t, 16>(name.sin6_addr.s6_addr));
  }
  return false;
}

bool MayConnect(const Url& url, const sockaddr& address, const HostRules& rules) {
  // A proxy looks names up, so this address is the proxy's.
  if (rules.environment_proxy || IsPublic(address)) return true;
  if (MatchesHost(url, rules.local_hosts)) return true;
  if (!MatchesHost(url, rules.named_hosts)) return false;
  const std::optional<std::array<uint8_t, 16>> bytes = BytesOf(address);
  return bytes && std::ranges::any_of(rules.networks, [&](const IpNetwork& network) {
           return IsInside(*bytes, network);
         });
}

std::string ShownUrl(std::string_view url) {
  const size_t query = url.find_first_of("?#");
  std::string shown(url.substr(0, query));
  if (query != std::string_view::npos) shown += "?...";
  // A text that is no address may still hold a password.
  const size_t scheme = shown.find("://");
  if (scheme == std::string::npos) return shown;
  const size_t begin = scheme + 3, end = std::min(shown.find('/', begin), shown.size());
  const size_t at = shown.rfind('@', end);
  if (at != std::string::npos && at >= begin) shown.erase(begin, at + 1 - begin);
  return shown;
}

}  // namespace longhaul::http
