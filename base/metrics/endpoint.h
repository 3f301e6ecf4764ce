// Serves a daemon's metrics to Prometheus at http://ADDRESS/metrics: read-only and without
// authentication. Uses two threads, which sleep between scrapes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/metrics/page.h"
#include "base/status.h"

namespace longhaul::metrics {

class Endpoint {
 public:
  // `address`: numeric host and port, "127.0.0.1:9464"; port 0 takes any free one. `collect` makes
  // the page of each scrape (page.h), on one of the endpoint's threads, until the endpoint is
  // destroyed. Logs the address, and warns if other machines can reach it. kUnavailable: the
  // address is not numeric, not of this machine, or in use.
  static StatusOr<std::unique_ptr<Endpoint>> Open(const std::string& address,
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
