#include "base/http/host_rules.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

namespace longhaul::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

sockaddr_storage AddressOf(const std::string& text) {
  sockaddr_storage storage{};
  if (text.find(':') == std::string::npos) {
    sockaddr_in name{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &name.sin_addr), 1) << text;
    std::memcpy(&storage, &name, sizeof(name));
  } else {
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &name.sin6_addr), 1) << text;
    std::memcpy(&storage, &name, sizeof(name));
  }
  return storage;
}

bool IsPublicText(const char* text) {
  const sockaddr_storage address = AddressOf(text);
  return IsPublic(reinterpret_cast<const sockaddr&>(address));
}

TEST(IsPublic, OnlyThePublicInternet) {
  for (const char* text : {"8.8.8.8", "52.216.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1",
                           "100.128.0.1", "223.255.255.254", "2606:4700::1111", "2a00:1450::1",
                           "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:0808:0808::1"}) {
    EXPECT_TRUE(IsPublicText(text)) << text;
  }
  for (const char* text : {"127.0.0.1",
                           "127.255.0.3",
                           "0.0.0.0",
                           "10.0.0.1",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "169.254.169.254",
                           "100.64.0.1",
                           "192.0.0.170",
                           "192.0.2.1",
                           "198.18.0.1",
                           "198.51.100.1",
                           "203.0.113.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "fc00::1",
                           "fd12::1",
                           "ff02::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "::127.0.0.1",
                           "64:ff9b::169.254.169.254",
                           "64:ff9b:1::1",
                           "2002:7f00:1::1",
                           "2001::1",
                           "2001:db8::1",
                           "3fff::1",
                           "fec0::1"}) {
    EXPECT_FALSE(IsPublicText(text)) << text;
  }
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  EXPECT_FALSE(IsPublic(unknown));
}

TEST(ParseUrl, GivesTheNormalForm) {
  const auto origin = [](const char* text) { return ParseUrl(text).value().origin(); };
  EXPECT_EQ(origin("https://Example.ORG/a"), "https://example.org:443");
  EXPECT_EQ(origin("http://example.org.:80/a"), "http://example.org:80");
  EXPECT_EQ(origin("https://[::1]:9000/"), "https://[::1]:9000");
  // Numbers that mean 127.0.0.1.
  EXPECT_EQ(origin("http://2130706433/"), "http://127.0.0.1:80");
  EXPECT_EQ(origin("http://0x7f.1/"), "http://127.0.0.1:80");
  EXPECT_EQ(ParseUrl("https://a.org/b?c=%2F#d").value().text, "https://a.org/b?c=%2F");
  for (const char* text :
       {"", "a", "/a", "ftp://a/b", "file:///etc/passwd", "http://", "https://:1/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseUrl(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseUrl(std::string("https://a/\0b", 11)).status()));
}

TEST(ParseUrl, UsersAreRefusedAndNeverShown) {
  const Status status = ParseUrl("https://user:secret@example.org/").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(Message(status)), Not(HasSubstr("secret")));
  EXPECT_EQ(ShownUrl("https://user:secret@example.org/a?sig=secret"), "https://example.org/a?...");
}

TEST(FollowUrl, ResolvesWhatIsRelative) {
  const Url base = ParseUrl("https://a.org/b/c?d").value();
  EXPECT_EQ(FollowUrl(base, "e").value().text, "https://a.org/b/e");
  EXPECT_EQ(FollowUrl(base, "/f?g").value().text, "https://a.org/f?g");
  EXPECT_EQ(FollowUrl(base, "//b.org/h").value().text, "https://b.org/h");
  EXPECT_EQ(FollowUrl(base, "http://127.0.0.1/").value().origin(), "http://127.0.0.1:80");
  EXPECT_FALSE(FollowUrl(base, "file:///etc/passwd").ok());
}

TEST(MayConnect, ANameAloneNeverLeadsToAPrivateAddress) {
  HostRules rules{.hosts = {"huggingface.co"}};
  for (const char* pattern : {"data.lan", "*.example.org:*", "10.0.0.7:9000", "[fd00::7]:*"}) {
    rules.Allow(pattern);
  }
  const auto may = [&](const char* url, const char* ip) {
    const sockaddr_storage address = AddressOf(ip);
    return CheckUrl(ParseUrl(url).value(), rules).ok() &&
           MayConnect(ParseUrl(url).value(), reinterpret_cast<const sockaddr&>(address), rules);
  };
  EXPECT_TRUE(may("https://huggingface.co/", "8.8.8.8"));
  EXPECT_TRUE(may("http://data.lan/", "8.8.8.8"));
  EXPECT_TRUE(may("http://10.0.0.7:9000/", "10.0.0.7"));
  EXPECT_TRUE(may("https://[fd00::7]/", "fd00::7"));
  EXPECT_FALSE(may("http://10.0.0.7:9001/", "10.0.0.7"));
  for (const char* ip : {"127.0.0.1", "169.254.169.254", "10.0.0.7", "192.168.1.1", "172.16.0.1",
                         "::1", "fe80::1", "fd00::7", "::ffff:127.0.0.1"}) {
    EXPECT_FALSE(may("https://huggingface.co/", ip)) << ip;
    EXPECT_FALSE(may("http://data.lan/", ip)) << ip;
    EXPECT_FALSE(may("https://a.example.org:1/", ip)) << ip;
  }
  // A network is for hosts that are named, too, and for no others.
  rules.networks = {ParseIpNetwork("10.0.0.0/8").value(), ParseIpNetwork("fd00::/16").value()};
  EXPECT_TRUE(may("http://data.lan/", "10.200.0.1"));
  EXPECT_TRUE(may("http://data.lan/", "fd00:1::1"));
  EXPECT_FALSE(may("http://data.lan/", "127.0.0.1"));
  EXPECT_FALSE(may("http://data.lan/", "fd01::1"));
  EXPECT_FALSE(may("https://huggingface.co/", "10.0.0.7"));
}

TEST(ParseIpNetwork, NetworksAndAddresses) {
  EXPECT_EQ(ParseIpNetwork("10.0.0.7").value(), ParseIpNetwork("10.0.0.7/32").value());
  EXPECT_EQ(ParseIpNetwork("0.0.0.0/0").value().bits, 96);
  EXPECT_EQ(ParseIpNetwork("::/0").value().bits, 0);
  for (const char* text : {"", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "::1/129", "fd00::/-1",
                           "10.0.0.0/8x", "example.org/8", "10.0.0.0/8/8"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseIpNetwork(text).status())) << text;
  }
}

TEST(CheckUrl, NamesAndPorts) {
  const HostRules rules{.hosts = {"huggingface.co", "*.hf.co", "minio.lan:9000", "other.lan:*"},
                        .local_hosts = {"mine.lan"}};
  const auto code = [&](const char* text) {
    return CheckUrl(ParseUrl(text).value(), rules).code();
  };
  for (const char* text : {"https://huggingface.co/a", "https://HuggingFace.co",
                           "https://cdn.hf.co/x", "https://a.b.hf.co", "https://minio.lan:9000/",
                           "https://other.lan:1/", "https://mine.lan/"}) {
    EXPECT_EQ(code(text), absl::StatusCode::kOk) << text;
  }
  for (const char* text : {"https://huggingface.co:444/", "https://hf.co/", "https://evilhf.co/",
                           "https://huggingface.co.evil.org/", "https://minio.lan/",
                           "http://huggingface.co/", "https://127.0.0.1/"}) {
    EXPECT_EQ(code(text), absl::StatusCode::kPermissionDenied) << text;
  }
  EXPECT_TRUE(CheckUrl(ParseUrl("https://any.org/").value(), {}).ok());
  EXPECT_TRUE(CheckUrl(ParseUrl("http://10.0.0.1:8/").value(), HostRules::Trusting()).ok());
}

}  // namespace
}  // namespace longhaul::http
