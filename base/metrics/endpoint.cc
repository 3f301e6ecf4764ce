#include "base/metrics/endpoint.h"

#include <arpa/inet.h>

#include <string_view>
#include <thread>
#include <utility>

#include "base/address.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/web/server/careful_server.h"

namespace longhaul::metrics {
namespace {

constexpr size_t kThreads = 2;
constexpr size_t kWaiting = 8;
constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";

// Names are refused: what they resolve to may be another machine's later.
bool IsNumeric(const std::string& address) {
  const StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return false;
  in6_addr bytes{};
  return ::inet_pton(AF_INET, parsed->host.c_str(), &bytes) == 1 ||
         ::inet_pton(AF_INET6, parsed->host.c_str(), &bytes) == 1;
}

bool HasToken(const httplib::Request& request, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  return header.starts_with(kScheme) &&
         ConstantTimeEqual(std::string_view(header).substr(kScheme.size()), token);
}

}  // namespace

struct Endpoint::Impl {
  Impl(const EndpointOptions& wanted, std::function<Page()> make)
      : token(wanted.token), collect(std::move(make)) {}

  void Answer(const httplib::Request& request, httplib::Response* response) const {
    if (!token.empty() && !HasToken(request, token)) {
      response->status = 401;
      response->set_header("WWW-Authenticate", "Bearer");
      return web::SendText("metrics need the header Authorization: Bearer TOKEN\n", "text/plain",
                           response);
    }
    web::SendText(ToText(collect()), kTextFormat, response);
  }

  const std::string token;
  const std::function<Page()> collect;
  std::string address;
  web::CarefulServer server;
  std::thread thread;
};

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Open(const EndpointOptions& options,
                                                   std::function<Page()> collect) {
  auto impl = std::make_unique<Impl>(options, std::move(collect));
  impl->server.SetLimits(kThreads, kWaiting);
  impl->server.set_payload_max_length(0);
  if (!options.certificate_file.empty()) {
    LH_RETURN_IF_ERROR(impl->server.UseTls(options.certificate_file, options.key_file));
  }
  const StatusOr<std::string> bound = IsNumeric(options.address)
                                          ? impl->server.Bind(options.address)
                                          : StatusOr<std::string>(absl::UnknownError(""));
  if (!bound.ok()) {
    return Unavailable(
        "cannot serve metrics at {}: it has to be a numeric address of this machine "
        "with a port that is free, such as 127.0.0.1:9464",
        options.address);
  }
  impl->address = *bound;
  impl->server.Get(
      "/metrics", [raw = impl.get()](const httplib::Request& request, httplib::Response& response) {
        raw->Answer(request, &response);
      });
  impl->thread = std::thread([raw = impl.get()] { raw->server.listen_after_bind(); });
  // Else a stop could come before the server runs, and be forgotten.
  while (!impl->server.is_running()) std::this_thread::yield();
  const bool encrypted = impl->server.uses_tls();
  LogInfo("metrics at {}://{}/metrics", encrypted ? "https" : "http", impl->address);
  const StatusOr<HostPort> parsed = ParseHostPort(options.address);
  if (!parsed.ok() || !IsLoopback(parsed->host)) {
    if (options.token.empty()) {
      LogWarning(
          "OPEN METRICS: whoever reaches {} reads them, without a password{}; 127.0.0.1 keeps them "
          "on this machine, and --metrics-token-file to those who have a token",
          impl->address, encrypted ? "" : " and without encryption");
    } else if (!encrypted) {
      LogWarning(
          "OPEN METRICS: whoever sees the traffic of {} reads them and their token; "
          "--metrics-certificate and --metrics-key encrypt them",
          impl->address);
    }
  }
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(impl)));
}

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Endpoint::~Endpoint() {
  impl_->server.stop();
  impl_->thread.join();
}

const std::string& Endpoint::address() const {
  return impl_->address;
}

}  // namespace longhaul::metrics
