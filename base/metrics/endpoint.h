// Where Prometheus scrapes a daemon: http://ADDRESS/metrics. Nobody authenticates there, and it
// only reads. Two threads, which sleep until somebody asks.
#ifndef LONGHAUL_BASE_METRICS_ENDPOINT_H_
#define LONGHAUL_BASE_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include "base/metrics/page.h"
#include "base/status.h"

namespace longhaul::metrics {

class Endpoint {
 public:
  // `address`: numeric host and port, "127.0.0.1:9464"; port 0 takes any free one. `collect` runs
  // on a thread of the endpoint's, once for each scrape, until the endpoint is gone.
  // Logs where it is, and says loudly where others than this machine can reach it. kUnavailable:
  // the address cannot be had.
  static StatusOr<std::unique_ptr<Endpoint>> Open(const std::string& address,
                                                  std::function<Page()> collect);
  ~Endpoint();

  // With the port that it really has.
  const std::string& address() const;

 private:
  struct Impl;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::metrics

#endif  // LONGHAUL_BASE_METRICS_ENDPOINT_H_
