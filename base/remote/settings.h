// What a program needs to reach objects besides their addresses: credentials, and where the
// services are. FindSettings reads both from the places where other tools keep them. Nothing else
// in this folder reads the environment or files of credentials.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/http/host_rules.h"
#include "base/status.h"

namespace longhaul::remote {

// A text that must not be shown. It can be neither formatted nor streamed, so no message can have
// it in it by accident.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string text) : text_(std::move(text)) {}
  bool empty() const { return text_.empty(); }
  // For a request's headers and for signing alone.
  const std::string& Reveal() const { return text_; }

 private:
  std::string text_;
};

// Keys of S3 or, as "HMAC keys", of Google Cloud Storage. Without a secret key requests are not
// signed, which public buckets accept.
struct Keys {
  std::string access_key;
  Secret secret_key;
  Secret session_token;  // of keys that expire; usually empty

  bool empty() const { return secret_key.empty(); }
};

struct Credentials {
  Secret hub_token;
  Keys s3, google;
};

// Where the services are: "https://host[:port]", without a path.
struct Endpoints {
  std::string hub = "https://huggingface.co";
  // Empty: Amazon's, in the region, with the bucket in the host's name. Other servers get the
  // bucket in the path.
  std::string s3;
  std::string s3_region = "us-east-1";
  std::string google = "https://storage.googleapis.com";
  // A file of certificate authorities that sign the servers' certificates. Empty: the system's.
  std::string ca_file;
};

struct Settings {
  Credentials credentials;
  Endpoints endpoints;
};

// Returns the value of a variable, or nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// The environment of this process.
Environment ProcessEnvironment();

// Finds each of the following settings in the first of its places that has it:
//   hub token       HF_TOKEN, the file HF_TOKEN_PATH, HF_HOME/token, ~/.cache/huggingface/token
//   hub             HF_ENDPOINT
//   S3 keys         AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the profile
//                   AWS_PROFILE (or default) in AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials
//   S3 server       AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL
//   S3 region       AWS_REGION, AWS_DEFAULT_REGION, the profile in AWS_CONFIG_FILE or ~/.aws/config
//   Google's keys   GS_ACCESS_KEY_ID with GS_SECRET_ACCESS_KEY
//   authorities     AWS_CA_BUNDLE, SSL_CERT_FILE
// Errors: kFailedPrecondition if one half of a pair of keys is missing or AWS_PROFILE names a
// profile that is not there; kInvalidArgument for an endpoint that is no address; by errno for a
// file that is there and cannot be read. Messages name variables and files, never their contents.
//
// FindSettings(WithoutCredentials(environment)) finds endpoints alone: it reads no file, and none
// of the variables that have or lead to credentials.
StatusOr<Settings> FindSettings(const Environment& environment = ProcessEnvironment());

Environment WithoutCredentials(Environment environment);

// Returns rules that allow these servers, Amazon's and Google's clouds, and the hosts to which
// huggingface.co redirects. Only servers that are named in `endpoints` may be private or speak
// http, because whoever started this program named them.
http::HostRules RulesFor(const Endpoints& endpoints);

}  // namespace longhaul::remote
