// The port that Prometheus scrapes: with and without a token and TLS.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <httplib.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <fstream>
#include <string>

#include "base/address.h"
#include "base/metrics/endpoint.h"
#include "tests/support/self_signed.h"
#include "tests/support/temp_dir.h"

namespace longhaul::metrics {
namespace {

using ::testing::HasSubstr;

Page OnePage() {
  Page page;
  AddFamily(&page, Kind::kGauge, "longhaul_thing", "A thing").samples.push_back({{}, 7});
  return page;
}

int PortOf(const Endpoint& endpoint) {
  return ParseHostPort(endpoint.address())->port;
}

// The serial number of the certificate that the port shows; 0: none.
long SerialAt(int port) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  BIO* const connection = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(connection, fmt::format("127.0.0.1:{}", port).c_str());
  long serial = 0;
  SSL* ssl = nullptr;
  if (BIO_do_connect(connection) == 1 && BIO_get_ssl(connection, &ssl) == 1) {
    X509* const seen = SSL_get1_peer_certificate(ssl);
    serial = ASN1_INTEGER_get(X509_get0_serialNumber(seen));
    X509_free(seen);
  }
  BIO_free_all(connection);
  SSL_CTX_free(context);
  return serial;
}

TEST(MetricsEndpointTest, ServesPagesAndNothingElse) {
  const auto endpoint = Endpoint::Open({.address = "127.0.0.1:0"}, OnePage);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  httplib::Client client("127.0.0.1", PortOf(**endpoint));
  const auto page = client.Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->get_header_value("Content-Type"), HasSubstr("version=0.0.4"));
  EXPECT_THAT(page->body, HasSubstr("longhaul_thing 7\n"));
  EXPECT_EQ(client.Get("/")->status, 404);
  EXPECT_EQ(client.Post("/metrics", "", "text/plain")->status, 404);
  for (const char* address : {"localhost:0", "192.0.2.1:0", "127.0.0.1", ""}) {
    EXPECT_TRUE(absl::IsUnavailable(Endpoint::Open({.address = address}, OnePage).status()))
        << address;
  }
  EXPECT_TRUE(
      absl::IsUnavailable(Endpoint::Open({.address = (*endpoint)->address()}, OnePage).status()));
}

TEST(MetricsEndpointTest, ATokenIsAskedFor) {
  const std::string token = "0123456789abcdef";
  const auto endpoint = Endpoint::Open({.address = "127.0.0.1:0", .token = token}, OnePage);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  httplib::Client client("127.0.0.1", PortOf(**endpoint));
  for (const std::string header : {"", "Bearer ", "Bearer 0123456789abcdeF", "0123456789abcdef",
                                   "Bearer 0123456789abcdef0", "Basic 0123456789abcdef"}) {
    const auto refused = client.Get("/metrics", {{"Authorization", header}});
    EXPECT_EQ(refused->status, 401) << header;
    EXPECT_EQ(refused->body.find("longhaul_thing"), std::string::npos);
  }
  EXPECT_EQ(client.Get("/metrics", {{"Authorization", "Bearer " + token}})->status, 200);
}

TEST(MetricsEndpointTest, ARenewedCertificateIsUsed) {
  const longhaul::testing::TempDir folder;
  const std::string certificate = folder.path() + "/c.pem", key = folder.path() + "/k.pem";
  const EndpointOptions options{
      .address = "127.0.0.1:0", .token = {}, .certificate_file = certificate, .key_file = key};
  EXPECT_TRUE(absl::IsFailedPrecondition(Endpoint::Open(options, OnePage).status()));
  const long first = longhaul::testing::WriteSelfSigned(certificate, key);
  const auto endpoint = Endpoint::Open(options, OnePage);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(SerialAt(PortOf(**endpoint)), first);
  const long second = longhaul::testing::WriteSelfSigned(certificate, key);
  EXPECT_EQ(SerialAt(PortOf(**endpoint)), second);
  // One that cannot be used leaves the one of before.
  std::ofstream(certificate) << "none";
  EXPECT_EQ(SerialAt(PortOf(**endpoint)), second);
}

}  // namespace
}  // namespace longhaul::metrics
