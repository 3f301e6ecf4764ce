// Sends requests over http and https, one after another or from many threads. The only place where
// this project acts as a client of web servers.
//
// Certificates are checked against the system's authorities. Redirects are followed here, not by
// libcurl: each target is held against the HostRules, and secrets stay with the first origin.
//
// Thread-safe. Calls block, and end at their deadline or soon (about a second) after `given_up`.
// Errors of Send. The code of an answer is no error of Send; ErrorOfAnswer makes one of it.
//   kInvalidArgument     not an address of a web server, or a header with control characters
//   kPermissionDenied    the HostRules forbid the address, a redirect's target, or the IP address
//   kUnavailable         no connection, or an answer that broke off: try again (retries.h)
//   kFailedPrecondition  too many redirects, a wrong certificate, a body that is too long
//   kCancelled           `given_up` has returned true
//   kDeadlineExceeded    the deadline has passed
//   kInternal            libcurl cannot start
// Messages never have headers, bodies or queries of addresses in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/http/host_rules.h"
#include "base/status.h"

namespace longhaul::http {

// Asked on the calling thread, about once a second or more often. True ends the call with
// kCancelled. An empty function never ends the call.
using GivenUp = std::function<bool()>;

// How long a call may take.
struct Call {
  Deadline deadline = Deadline::At(MonoTime::max());
  GivenUp given_up = {};

  // kCancelled, kDeadlineExceeded, or OK.
  Status Check() const;
};

struct ClientOptions {
  HostRules hosts = {};
  // A file of certificate authorities to trust instead of the system's. Empty: the system's.
  std::string ca_file = {};
  absl::Duration connect_limit = absl::Seconds(15);
  // Ends a transfer on which no byte came or went for so long. Whole seconds.
  absl::Duration silence_limit = absl::Seconds(60);
};

struct Request {
  std::string method = "GET";
  std::string url;
  // "Name: value". `secrets` are sent to the origin of `url` alone.
  std::vector<std::string> headers = {}, secrets = {};
  // Sent if the method is PUT or POST. Valid until Send returns.
  std::span<const std::byte> body = {};
  // Redirects that GET and HEAD follow. 0: an answer of 3xx is returned as it is.
  int redirects = 10;
  // If false, the first redirect to another origin is returned as an answer of 3xx.
  bool leaves_origin = true;
  // The longest body of an answer that Send collects, in bytes.
  uint64_t body_limit = 64 << 20;
};

struct Answer {
  int code = 0;
  // By name in lower case. Of several headers with one name, the last.
  std::map<std::string, std::string, std::less<>> headers;
  std::string body;
  std::string url;       // the server that answered, after redirects
  std::string redirect;  // of an answer of 3xx: the target

  bool ok() const { return code >= 200 && code < 300; }
  // Returns "" if there is no such header. `name` is in lower case.
  const std::string& Header(std::string_view name) const;
};

// Gets the body of an answer of 2xx in pieces. An error ends the call, which returns that error.
struct Receiver {
  std::function<Status(const Answer&)> begin;  // once, before the body
  std::function<Status(std::string_view)> take;
};

class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends the request once; does not try again. Collects the body in Answer::body, or passes it to
  // `receiver`. Bodies of other answers than 2xx are collected up to 64 KiB; the rest is dropped.
  StatusOr<Answer> Send(const Request& request, const Call& call,
                        const Receiver* receiver = nullptr) const;

 private:
  struct Handles;
  const ClientOptions options_;
  // Idle handles of libcurl with their open connections.
  const std::unique_ptr<Handles> handles_;
};

// Returns the error for an answer that is not 2xx: kPermissionDenied (401, 403), kNotFound (404,
// 410), kUnavailable (408, 425, 429, 500, 502, 503, 504; with the server's Retry-After, see
// retries.h), otherwise kFailedPrecondition. The message begins with `what`, such as "cannot read
// s3://bucket/key", and names the code and `reason`, which may be empty.
Status ErrorOfAnswer(std::string_view what, const Answer& answer, std::string_view reason = {});

}  // namespace longhaul::http
