// Signs requests to S3 by AWS Signature Version 4, in headers or in the query of an address that
// expires. Pure functions: the time is an argument. Libcurl's CURLOPT_AWS_SIGV4 is not used: that
// of Debian 12 neither sorts queries nor signs addresses.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/remote/settings.h"

namespace longhaul::remote {

struct SignedScope {
  std::string region;
  std::string service = "s3";
};

// What is signed. Names and values of the query are not escaped; Path and names of headers are as
// they are sent.
struct ToSign {
  std::string method = "GET";
  std::string host;        // as in the Host header: with the port, if that is not the scheme's own
  std::string path = "/";  // escaped
  std::vector<std::pair<std::string, std::string>> query = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // besides Host; in lower case
  // The SHA-256 of the body in hexadecimal digits, or "UNSIGNED-PAYLOAD".
  std::string payload_sha256 = {};
};

// The SHA-256 of an empty body.
extern const char* const kEmptySha256;

// Returns the headers that a signed request needs besides Host: those of `request`, x-amz-date,
// x-amz-content-sha256 (for the service s3), x-amz-security-token (with a session token) and
// Authorization.
std::vector<std::pair<std::string, std::string>> SignHeaders(const ToSign& request,
                                                             const Keys& keys,
                                                             const SignedScope& scope,
                                                             absl::Time now);

// Returns the query of the address, with which anybody may send this one request until `validity`
// has passed. Requires at most seven days. The body is not signed.
std::string SignQuery(const ToSign& request, const Keys& keys, const SignedScope& scope,
                      absl::Time now, absl::Duration validity);

// Returns the query, escaped and sorted, as it is signed and must be sent.
std::string CanonicalQuery(std::vector<std::pair<std::string, std::string>> query);

}  // namespace longhaul::remote
