#include "base/http/host_rules.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace longhaul::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

bool IsPublicText(const char* text) {
  sockaddr_storage storage{};
  if (in_addr four{}; ::inet_pton(AF_INET, text, &four) == 1) {
    sockaddr_in name{.sin_family = AF_INET, .sin_port = 0, .sin_addr = four, .sin_zero = {}};
    std::memcpy(&storage, &name, sizeof(name));
  } else {
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text, &name.sin6_addr), 1) << text;
    std::memcpy(&storage, &name, sizeof(name));
  }
  return IsPublic(reinterpret_cast<const sockaddr&>(storage));
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
