#include "coordinator/rpc/observe_service.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/printable.h"
#include "coordinator/rpc/serve.h"

namespace longhaul::coordinator {
namespace {

using Unary = grpc::ServerUnaryReactor;

}  // namespace

Unary* ObserveServiceImpl::CreateDashboardKey(Context* context,
                                              const v1::DashboardKeyRequest* request,
                                              v1::DashboardKeyReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kDashboardKey, [&](const Caller& caller) -> Status {
    const absl::Duration life =
        request->seconds() == 0 ? kDefaultDashboardKeyLife : absl::Seconds(request->seconds());
    if (life < absl::Seconds(1) || life > kLongestDashboardKeyLife) {
      return InvalidArgument("expected a life of 1 s to {} days of a key, got {} s",
                             absl::ToInt64Hours(kLongestDashboardKeyLife) / 24, request->seconds());
    }
    const absl::Time until = absl::Now() + life;
    reply->set_key(keys_->Make(caller, until));
    reply->set_until_unix_ms(absl::ToUnixMillis(until));
    {
      const std::lock_guard lock(mutex_);
      reply->set_address(dashboard_);
    }
    gate_->Note(caller, *context, "dashboard-key", fmt::format("{} s", absl::ToInt64Seconds(life)),
                absl::OkStatus());
    return absl::OkStatus();
  });
}

Unary* ObserveServiceImpl::ReportMetrics(Context* context, const v1::MetricsReport* request,
                                         v1::MetricsReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kReportMetrics, [&](const Caller& caller) -> Status {
    reply->set_wanted(pages_ != nullptr);
    reply->set_again_seconds(
        absl::ToDoubleSeconds(pages_ == nullptr ? kMetricsAskedEvery : kMetricsEvery));
    if (pages_ == nullptr || request->families().empty()) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(metrics::Page page, AdmitMetrics(*request));
    // A worker can write what it likes, so the certificate's words replace its own.
    const std::string id = caller.member ? caller.member->worker_id : request->worker_id();
    const std::string name = caller.member ? caller.member->name : request->worker_name();
    if (id.empty() || id.size() > kMostMetricTextBytes || name.size() > kMostMetricTextBytes) {
      return InvalidArgument("expected a worker's id and name of at most {} bytes",
                             kMostMetricTextBytes);
    }
    return pages_->Put(Printable(id), Printable(name), std::move(page), request->ByteSizeLong(),
                       Now());
  });
}

}  // namespace longhaul::coordinator
