// Vectors that Amazon has published: the "AWS Signature Version 4 test suite" (service "service")
// and the examples of "Authenticating Requests" in the reference of S3.
#include "base/remote/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"

namespace longhaul::remote {
namespace {

using ::testing::HasSubstr;
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string ValueOf(const Pairs& headers, std::string_view wanted) {
  for (const auto& [name, value] : headers) {
    if (name == wanted) return value;
  }
  return "";
}

// --- The test suite ----------------------------------------------------------------

struct Vector {
  const char* name;
  ToSign request;
  const char* signed_headers;
  const char* signature;
};

ToSign Suite(std::string method, std::string path, Pairs query = {}, Pairs headers = {}) {
  return {.method = std::move(method),
          .host = "example.amazonaws.com",
          .path = std::move(path),
          .query = std::move(query),
          .headers = std::move(headers),
          .payload_sha256 = kEmptySha256};
}

TEST(SigV4, TheTestSuite) {
  const Keys keys{.access_key = "AKIDEXAMPLE",
                  .secret_key = Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")};
  const SignedScope scope{.region = "us-east-1", .service = "service"};
  const absl::Time now =
      absl::FromCivil(absl::CivilSecond(2015, 8, 30, 12, 36, 0), absl::UTCTimeZone());
  const Vector vectors[] = {
      {"get-vanilla", Suite("GET", "/"), "host;x-amz-date",
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"get-vanilla-query-order-key-case",
       Suite("GET", "/", {{"Param2", "value2"}, {"Param1", "value1"}}), "host;x-amz-date",
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-utf8", Suite("GET", "/%E1%88%B4"), "host;x-amz-date",
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-header-key-duplicate",
       Suite("GET", "/", {},
             {{"my-header1", "value2"}, {"my-header1", "value2"}, {"my-header1", "value1"}}),
       "host;my-header1;x-amz-date",
       "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
      {"get-header-value-trim",
       Suite("GET", "/", {}, {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}}),
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {"post-vanilla", Suite("POST", "/"), "host;x-amz-date",
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
  };
  for (const Vector& vector : vectors) {
    EXPECT_EQ(ValueOf(SignHeaders(vector.request, keys, scope, now), "authorization"),
              std::string("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
                          "aws4_request, SignedHeaders=") +
                  vector.signed_headers + ", Signature=" + vector.signature)
        << vector.name;
  }
}

// --- The examples of S3 ---------------------------------------------------------------

const Keys kKeys{.access_key = "AKIAIOSFODNN7EXAMPLE",
                 .secret_key = Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")};
const SignedScope kScope{.region = "us-east-1"};
const absl::Time kNow =
    absl::FromCivil(absl::CivilSecond(2013, 5, 24, 0, 0, 0), absl::UTCTimeZone());

ToSign Example(std::string method, std::string path, Pairs query = {}, Pairs headers = {}) {
  ToSign request = Suite(std::move(method), std::move(path), std::move(query), std::move(headers));
  request.host = "examplebucket.s3.amazonaws.com";
  return request;
}

TEST(SigV4, ExamplesOfHeaders) {
  const auto signature = [](const ToSign& request) {
    const std::string value = ValueOf(SignHeaders(request, kKeys, kScope, kNow), "authorization");
    return value.substr(value.rfind('=') + 1);
  };
  EXPECT_EQ(signature(Example("GET", "/test.txt", {}, {{"range", "bytes=0-9"}})),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  ToSign put = Example(
      "PUT", "/test%24file.text", {},
      {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}});
  put.payload_sha256 = Sha256Hex("Welcome to Amazon S3.");
  EXPECT_EQ(signature(put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(signature(Example("GET", "/", {{"lifecycle", ""}})),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(signature(Example("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}})),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4, ExampleOfAnAddressThatExpires) {
  const std::string query =
      SignQuery(Example("GET", "/test.txt"), kKeys, kScope, kNow, absl::Seconds(86400));
  EXPECT_EQ(query,
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F"
            "us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"
            "X-Amz-SignedHeaders=host&X-Amz-Signature="
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(SigV4, SessionTokensAreSigned) {
  Keys keys = kKeys;
  keys.session_token = Secret("a/token+");
  const Pairs headers = SignHeaders(Example("GET", "/a"), keys, kScope, kNow);
  EXPECT_EQ(ValueOf(headers, "x-amz-security-token"), "a/token+");
  EXPECT_THAT(ValueOf(headers, "authorization"),
              HasSubstr("host;x-amz-content-sha256;x-amz-date;x-amz-security-token"));
  EXPECT_THAT(SignQuery(Example("GET", "/a"), keys, kScope, kNow, absl::Seconds(60)),
              HasSubstr("&X-Amz-Security-Token=a%2Ftoken%2B&"));
}

TEST(SigV4, QueriesAreEscapedAndSorted) {
  EXPECT_EQ(CanonicalQuery({{"b", "x y/"}, {"a", "ü"}, {"a", "+"}}), "a=%2B&a=%C3%BC&b=x%20y%2F");
}

}  // namespace
}  // namespace longhaul::remote
