// Sends the worker's metrics to the coordinator, which shows them where Prometheus does not reach
// the worker. Where the coordinator does not want them, asks again now and then. Uses one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/metrics/page.h"
#include "longhaul/v1/observe.grpc.pb.h"
#include "proto/member/access.h"

namespace longhaul::worker {

// Returns the page as the coordinator gets it.
v1::MetricsReport ToReport(const metrics::Page& page);

class MetricsCourier {
 public:
  // `collect` makes a page, on the courier's thread, until the courier is destroyed.
  MetricsCourier(std::shared_ptr<Access> access, std::string worker_id, std::string name,
                 std::function<metrics::Page()> collect);
  // Cancels a report under way.
  ~MetricsCourier();

 private:
  void Loop();
  // Returns when to report again.
  absl::Duration Report();

  StubOf<v1::ObserveService> stub_;
  const std::string worker_id_, name_;
  const std::function<metrics::Page()> collect_;
  bool wanted_ = false;  // of the thread
  std::mutex mutex_;     // guards the members below
  std::condition_variable changed_;
  bool closing_ = false;
  grpc::ClientContext* call_ = nullptr;  // under way
  std::thread thread_;
};

}  // namespace longhaul::worker
