// ObserveService: keys for the dashboard, and metrics that workers report. Thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "coordinator/rpc/dashboard_keys.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/worker_pages.h"
#include "longhaul/v1/observe.grpc.pb.h"

namespace longhaul::coordinator {

class ObserveServiceImpl : public v1::ObserveService::CallbackService {
 public:
  // All pointers must outlive the server. `pages`: null: nobody scrapes this coordinator.
  ObserveServiceImpl(Gate* gate, const DashboardKeys* keys, WorkerPages* pages)
      : gate_(gate), keys_(keys), pages_(pages) {}

  // Says where the dashboard is, as a URL, once it is there.
  void SetDashboard(const std::string& url) {
    const std::lock_guard lock(mutex_);
    dashboard_ = url;
  }

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* CreateDashboardKey(Context* context,
                                               const v1::DashboardKeyRequest* request,
                                               v1::DashboardKeyReply* reply) override;
  grpc::ServerUnaryReactor* ReportMetrics(Context* context, const v1::MetricsReport* request,
                                          v1::MetricsReply* reply) override;

 private:
  Gate* const gate_;
  const DashboardKeys* const keys_;
  WorkerPages* const pages_;
  std::mutex mutex_;  // guards the next one
  std::string dashboard_;
};

}  // namespace longhaul::coordinator
