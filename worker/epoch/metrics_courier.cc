#include "worker/epoch/metrics_courier.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace longhaul::worker {
namespace {

// A report that takes longer is of no use. Between reports, whatever the coordinator says.
constexpr std::chrono::seconds kReportLimit{10};
constexpr absl::Duration kShortestPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Minutes(10);
// Where the coordinator does not answer, or knows no such call.
constexpr absl::Duration kPauseAfterFailure = absl::Seconds(30);

}  // namespace

v1::MetricsReport ToReport(const metrics::Page& page) {
  v1::MetricsReport report;
  for (const metrics::Family& family : page) {
    v1::MetricFamily* const one = report.add_families();
    one->set_name(family.name);
    one->set_counter(family.kind == metrics::Kind::kCounter);
    one->set_help(family.help);
    one->mutable_label_names()->Add(family.label_names.begin(), family.label_names.end());
    for (const metrics::Sample& sample : family.samples) {
      v1::MetricSample* const value = one->add_samples();
      value->mutable_labels()->Add(sample.labels.begin(), sample.labels.end());
      value->set_value(sample.value);
    }
  }
  return report;
}

MetricsCourier::MetricsCourier(std::shared_ptr<Access> access, std::string worker_id,
                               std::string name, std::function<metrics::Page()> collect)
    : stub_(std::move(access)),
      worker_id_(std::move(worker_id)),
      name_(std::move(name)),
      collect_(std::move(collect)),
      thread_([this] { Loop(); }) {}

MetricsCourier::~MetricsCourier() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (call_ != nullptr) call_->TryCancel();
    changed_.notify_all();
  }
  thread_.join();
}

void MetricsCourier::Loop() {
  while (true) {
    const absl::Duration pause = Report();
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, absl::ToChronoMilliseconds(pause), [this] { return closing_; })) {
      return;
    }
  }
}

absl::Duration MetricsCourier::Report() {
  v1::MetricsReport report;
  if (wanted_) report = ToReport(collect_());
  report.set_worker_id(worker_id_);
  report.set_worker_name(name_);
  const auto stub = stub_.Get();
  grpc::ClientContext context;
  stub_.access().Prepare(&context, /*wait=*/false);
  context.set_deadline(std::chrono::system_clock::now() + kReportLimit);
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return absl::ZeroDuration();
    call_ = &context;
  }
  v1::MetricsReply reply;
  const grpc::Status status = stub->ReportMetrics(&context, report, &reply);
  {
    const std::lock_guard lock(mutex_);
    call_ = nullptr;
  }
  // The session with the coordinator finds out who serves, and logs what is wrong.
  if (!status.ok()) return kPauseAfterFailure;
  const bool first = reply.wanted() && !wanted_;
  wanted_ = reply.wanted();
  if (first) return absl::ZeroDuration();
  return std::clamp(absl::Seconds(reply.again_seconds()), kShortestPause, kLongestPause);
}

}  // namespace longhaul::worker
