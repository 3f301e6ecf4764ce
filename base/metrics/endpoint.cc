#include "base/metrics/endpoint.h"

#include <fmt/core.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/log.h"
#include "base/metrics/families.h"

namespace longhaul::metrics {
namespace {

class Collector : public prometheus::Collectable {
 public:
  explicit Collector(std::function<Page()> collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return ToFamilies(collect_()); }

 private:
  const std::function<Page()> collect_;
};

}  // namespace

struct Endpoint::Impl {
  std::string address;
  std::shared_ptr<Collector> collector;
  std::unique_ptr<prometheus::Exposer> exposer;  // goes first: it calls the collector
};

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Open(const std::string& address,
                                                   std::function<Page()> collect) {
  auto impl = std::make_unique<Impl>();
  impl->collector = std::make_shared<Collector>(std::move(collect));
  try {
    // A caller that says nothing holds up the next scrape for no longer than a few seconds.
    impl->exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads", "1",
                                 "request_timeout_ms", "3000", "enable_keep_alive", "no"});
    impl->exposer->RegisterCollectable(impl->collector);
  } catch (const std::exception&) {  // its text says no more than that
    return Unavailable(
        "cannot serve metrics at {}: it has to be a numeric address of this machine "
        "with a port that is free, such as 127.0.0.1:9464",
        address);
  }
  const std::vector<int> ports = impl->exposer->GetListeningPorts();
  impl->address = fmt::format("{}:{}", address.substr(0, address.rfind(':')),
                              ports.empty() ? 0 : ports.front());
  LogInfo("metrics at http://{}/metrics", impl->address);
  const StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok() || !IsLoopback(parsed->host)) {
    LogWarning(
        "OPEN METRICS: whoever reaches {} reads them, without a password and without encryption; "
        "127.0.0.1 keeps them on this machine",
        impl->address);
  }
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(impl)));
}

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Endpoint::~Endpoint() = default;

const std::string& Endpoint::address() const {
  return impl_->address;
}

}  // namespace longhaul::metrics
