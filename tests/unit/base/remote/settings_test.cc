#include "base/remote/settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::remote {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

static_assert(!fmt::is_formattable<Secret>::value, "messages must not be able to have secrets");

class SettingsTest : public ::testing::Test {
 protected:
  StatusOr<Settings> Find(std::map<std::string, std::string> values) {
    values.emplace("HOME", home_.path());
    return FindSettings([values](const std::string& name) -> std::optional<std::string> {
      const auto found = values.find(name);
      if (found == values.end()) return std::nullopt;
      return found->second;
    });
  }
  std::string Write(const std::string& name, std::string_view text) {
    const std::string path = home_.path() + "/" + name;
    EXPECT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return path;
  }
  std::string Error(std::map<std::string, std::string> values) {
    const auto settings = Find(std::move(values));
    EXPECT_FALSE(settings.ok());
    return std::string(Message(settings.status()));
  }
  const testing::TempDir home_;
};

TEST_F(SettingsTest, WithoutAnythingThereAreNoCredentials) {
  const Settings settings = Find({}).value();
  EXPECT_TRUE(settings.credentials.hub_token.empty());
  EXPECT_TRUE(settings.credentials.s3.empty());
  EXPECT_TRUE(settings.credentials.google.empty());
  EXPECT_EQ(settings.endpoints.hub, "https://huggingface.co");
  EXPECT_EQ(settings.endpoints.s3, "");
  EXPECT_EQ(settings.endpoints.s3_region, "us-east-1");
}

TEST_F(SettingsTest, TheTokenOfAHubComesFromTheFirstPlaceThatHasOne) {
  Write(".cache/huggingface/token", "hf_home\n");
  EXPECT_EQ(Find({}).value().credentials.hub_token.Reveal(), "hf_home");
  const std::string other = Write("other/token", "hf_other");
  EXPECT_EQ(Find({{"HF_HOME", home_.path() + "/other"}}).value().credentials.hub_token.Reveal(),
            "hf_other");
  EXPECT_EQ(Find({{"HF_TOKEN_PATH", other}}).value().credentials.hub_token.Reveal(), "hf_other");
  EXPECT_EQ(Find({{"HF_TOKEN", "hf_said"}, {"HF_TOKEN_PATH", other}})
                .value()
                .credentials.hub_token.Reveal(),
            "hf_said");
}

TEST_F(SettingsTest, KeysOfS3ComeFromTheEnvironmentOrAProfile) {
  Write(".aws/credentials",
        "# comment\n[default]\naws_access_key_id = A1\naws_secret_access_key=s1==\n\n"
        "[other]\naws_access_key_id=A2\naws_secret_access_key = s2\naws_session_token = t2\n");
  Write(".aws/config", "[default]\nregion = eu-west-1\n[profile other]\nregion=eu-north-1\n");
  Settings settings = Find({}).value();
  EXPECT_EQ(settings.credentials.s3.access_key, "A1");
  EXPECT_EQ(settings.credentials.s3.secret_key.Reveal(), "s1==");
  EXPECT_TRUE(settings.credentials.s3.session_token.empty());
  EXPECT_EQ(settings.endpoints.s3_region, "eu-west-1");
  settings = Find({{"AWS_PROFILE", "other"}}).value();
  EXPECT_EQ(settings.credentials.s3.access_key, "A2");
  EXPECT_EQ(settings.credentials.s3.session_token.Reveal(), "t2");
  EXPECT_EQ(settings.endpoints.s3_region, "eu-north-1");
  settings =
      Find({{"AWS_ACCESS_KEY_ID", "A3"}, {"AWS_SECRET_ACCESS_KEY", "s3"}, {"AWS_REGION", "x"}})
          .value();
  EXPECT_EQ(settings.credentials.s3.access_key, "A3");
  EXPECT_EQ(settings.endpoints.s3_region, "x");
}

TEST_F(SettingsTest, ServersAreReadWithoutTheirLastSlash) {
  const Settings settings = Find({{"HF_ENDPOINT", "https://hub.lan/"},
                                  {"AWS_ENDPOINT_URL", "http://a.lan:1"},
                                  {"AWS_ENDPOINT_URL_S3", "http://b.lan:2/"},
                                  {"GS_ACCESS_KEY_ID", "G"},
                                  {"GS_SECRET_ACCESS_KEY", "g"},
                                  {"AWS_CA_BUNDLE", "/ca.pem"}})
                                .value();
  EXPECT_EQ(settings.endpoints.hub, "https://hub.lan");
  EXPECT_EQ(settings.endpoints.s3, "http://b.lan:2");
  EXPECT_EQ(settings.endpoints.ca_file, "/ca.pem");
  EXPECT_EQ(settings.credentials.google.access_key, "G");
}

TEST_F(SettingsTest, ErrorsNameThePlaceAndNeverTheSecret) {
  EXPECT_THAT(Error({{"AWS_SECRET_ACCESS_KEY", "top-secret"}}),
              ::testing::AllOf(HasSubstr("AWS_ACCESS_KEY_ID together with AWS_SECRET_ACCESS_KEY"),
                               Not(HasSubstr("top-secret"))));
  EXPECT_THAT(Error({{"AWS_PROFILE", "none"}}), HasSubstr("has no section [none]"));
  EXPECT_THAT(Error({{"HF_ENDPOINT", "hub.lan"}}), HasSubstr("HF_ENDPOINT: expected an address"));
  EXPECT_THAT(Error({{"HF_ENDPOINT", "https://hub.lan/a/b"}}), HasSubstr("without a path"));
  Write("credentials", "[default]\naws_secret_access_key = top-secret\n");
  EXPECT_THAT(Error({{"AWS_SHARED_CREDENTIALS_FILE", home_.path() + "/credentials"}}),
              ::testing::AllOf(HasSubstr("section [default]: expected aws_access_key_id"),
                               Not(HasSubstr("top-secret"))));
}

TEST_F(SettingsTest, EndpointsAreFoundWithoutCredentials) {
  Write(".cache/huggingface/token", "hf_file");
  Write(".aws/credentials", "[default]\naws_secret_access_key = half\n");
  const std::map<std::string, std::string> values = {
      {"HOME", home_.path()},         {"HF_TOKEN", "hf_token"},
      {"HF_TOKEN_PATH", "/a"},        {"HF_HOME", home_.path() + "/.cache/huggingface"},
      {"AWS_ACCESS_KEY_ID", "key"},   {"AWS_SECRET_ACCESS_KEY", "secret"},
      {"AWS_PROFILE", "none"},        {"GS_ACCESS_KEY_ID", "key"},
      {"HF_ENDPOINT", "http://hub"},  {"AWS_ENDPOINT_URL_S3", "http://s3:9000"},
      {"AWS_REGION", "eu-central-1"}, {"SSL_CERT_FILE", "/certificates"}};
  const auto settings =
      FindSettings(WithoutCredentials([&](const std::string& name) -> std::optional<std::string> {
        const auto found = values.find(name);
        if (found == values.end()) return std::nullopt;
        return found->second;
      }));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_TRUE(settings->credentials.hub_token.empty());
  EXPECT_TRUE(settings->credentials.s3.empty());
  EXPECT_EQ(settings->credentials.s3.access_key, "");
  EXPECT_EQ(settings->credentials.google.access_key, "");
  EXPECT_EQ(settings->endpoints.hub, "http://hub");
  EXPECT_EQ(settings->endpoints.s3, "http://s3:9000");
  EXPECT_EQ(settings->endpoints.s3_region, "eu-central-1");
  EXPECT_EQ(settings->endpoints.ca_file, "/certificates");
}

TEST(RulesFor, OnlyServersThatTheUserNamedMayBePrivate) {
  const auto code = [](const http::HostRules& rules, const char* url) {
    return http::CheckUrl(http::ParseUrl(url).value(), rules).code();
  };
  const http::HostRules usual = RulesFor({});
  EXPECT_TRUE(usual.local_hosts.empty());
  for (const char* url :
       {"https://huggingface.co/x", "https://cas-bridge.xethub.hf.co/x",
        "https://bucket.s3.eu-west-1.amazonaws.com/x", "https://s3.eu-west-1.amazonaws.com/a.b/x",
        "https://bucket.s3.amazonaws.com/x", "https://a.b.s3.us-east-1.amazonaws.com/x",
        "https://hub.s3-accelerate.amazonaws.com/x", "https://storage.googleapis.com/x",
        "https://bucket.storage.googleapis.com/x"}) {
    EXPECT_EQ(code(usual, url), absl::StatusCode::kOk) << url;
  }
  // Servers of customers, and services that are no store.
  for (const char* url :
       {"https://ec2-192-0-2-1.compute-1.amazonaws.com/x", "https://s3-1.elb.amazonaws.com/x",
        "https://x.execute-api.eu-west-1.amazonaws.com/x", "https://s3.x.elb.amazonaws.com/x",
        "https://s3.eu-west-1.amazonaws.com.example.org/x", "https://s3..amazonaws.com/x",
        "https://x.s3.eu-west-1.vpce.amazonaws.com/x", "https://sts.amazonaws.com/x",
        "https://run.googleapis.com/x", "https://storagegoogleapis.com/x"}) {
    EXPECT_EQ(code(usual, url), absl::StatusCode::kPermissionDenied) << url;
  }
  EXPECT_EQ(code(usual, "https://example.org/"), absl::StatusCode::kPermissionDenied);
  const http::HostRules own = RulesFor({.s3 = "http://minio.lan:9000"});
  EXPECT_EQ(own.local_hosts, std::vector<std::string>{"minio.lan:9000"});
  EXPECT_EQ(code(own, "http://minio.lan:9000/bucket"), absl::StatusCode::kOk);
  EXPECT_EQ(code(own, "http://minio.lan:9001/bucket"), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace longhaul::remote
