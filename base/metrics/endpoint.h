// Serves a daemon's metrics to Prometheus at http://ADDRESS/metrics, read-only; with a certificate
// at https://, with a token to those alone who have it. Uses three threads, which sleep between
// scrapes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/metrics/page.h"
#include "base/status.h"

namespace longhaul::metrics {

struct EndpointOptions {
  std::string address;  // numeric host and port, "127.0.0.1:9464"; port 0: any free one
  std::string token;    // scrapes need `Authorization: Bearer TOKEN`; empty: they need nothing
  std::string certificate_file, key_file;  // PEM; empty: no TLS
};

class Endpoint {
 public:
  // `collect` makes the page of each scrape (page.h), on one of the endpoint's threads, until the
  // endpoint is destroyed. Logs the address, and warns if other machines can read metrics there
  // without a token, or can read the token on its way. kUnavailable: the address is not numeric,
  // not of this machine, or in use. kFailedPrecondition: the certificate cannot be used.
  static StatusOr<std::unique_ptr<Endpoint>> Open(const EndpointOptions& options,
                                                  std::function<Page()> collect);
  ~Endpoint();

  // Returns the address with the real port. Valid while the endpoint lives.
  const std::string& address() const;

 private:
  struct Impl;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::metrics
