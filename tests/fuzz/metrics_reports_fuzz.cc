// A worker reports any metrics. What is admitted leaves the coordinator's page one that Prometheus
// reads, and has lines about workers alone.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/fuzz/target.h"
#include "coordinator/rpc/worker_pages.h"

namespace longhaul::coordinator {
namespace {

bool IsAboutWorkers(const std::string& line) {
  for (const std::string_view begin : {"", "# HELP ", "# TYPE "}) {
    if (line.starts_with(std::string(begin) + std::string(kWorkerPrefix))) return true;
  }
  return line.empty();
}

}  // namespace
}  // namespace longhaul::coordinator

LH_FUZZ_TARGET(metrics_reports) {
  using namespace longhaul::coordinator;  // NOLINT(google-build-using-namespace)
  longhaul::v1::MetricsReport report;
  if (!report.ParseFromArray(data, static_cast<int>(size))) return false;
  auto admitted = AdmitMetrics(report);
  if (!admitted.ok()) return false;
  WorkerPages pages;
  const longhaul::MonoTime now = longhaul::Now();
  if (!pages.Put("id", "worker", *std::move(admitted), report.ByteSizeLong(), now).ok()) {
    std::abort();
  }
  longhaul::metrics::Page page;
  pages.AddTo(&page, now);
  const std::vector<std::string> lines = absl::StrSplit(longhaul::metrics::ToText(page), '\n');
  for (const std::string& line : lines) {
    if (!IsAboutWorkers(line)) std::abort();
  }
  return true;
}
