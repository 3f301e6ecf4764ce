// The newest page of metrics of each worker that reports one, for workers that Prometheus does not
// reach. The coordinator shows them beside its own metrics, with the worker's name on each sample.
// Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/metrics/page.h"
#include "base/status.h"
#include "longhaul/v1/observe.pb.h"

namespace longhaul::coordinator {

// How often workers report, and how long a page is shown after it came.
inline constexpr absl::Duration kMetricsEvery = absl::Seconds(15);
inline constexpr absl::Duration kMetricsKept = absl::Seconds(50);
// How often they ask whether their metrics are wanted, where they are not.
inline constexpr absl::Duration kMetricsAskedEvery = absl::Minutes(2);
// Limits of one page. Texts are those of labels and help.
inline constexpr int kMostFamilies = 200;
inline constexpr int kMostSamples = 4'000;  // in all families of a page
inline constexpr int kMostLabels = 12;
inline constexpr size_t kMostMetricTextBytes = 256;
inline constexpr size_t kMostPageBytes = 128 << 10;    // as the report has them
inline constexpr size_t kMostBytesOfPages = 64 << 20;  // of all workers
// Names of workers' families begin with this, which no family of the coordinator does.
inline constexpr std::string_view kWorkerPrefix = "longhaul_worker_";

// Checks a report and returns its families. Texts are made printable. kInvalidArgument: a name is
// not one of a worker's metric, a label is the coordinator's own, a sample has another number of
// labels than its family, or the report is larger than the limits above; the message says which.
StatusOr<metrics::Page> AdmitMetrics(const v1::MetricsReport& report);

class WorkerPages {
 public:
  // Keeps the page of a worker in place of its last one. `bytes`: of its report.
  // kResourceExhausted: the pages of all workers would be too large.
  Status Put(const std::string& worker_id, const std::string& name, metrics::Page page,
             size_t bytes, MonoTime now);
  // Adds the pages that are not too old to `page`: families of the same name become one, with the
  // labels worker and worker_id first. A family is left out of a page if another worker's has other
  // labels or another kind. Forgets pages that are too old.
  void AddTo(metrics::Page* page, MonoTime now);

 private:
  struct Kept {
    std::string name;
    metrics::Page page;
    size_t bytes = 0;
    MonoTime time;
  };
  // Forgets what is too old, with mutex_ held.
  void ForgetOld(MonoTime now);
  std::mutex mutex_;
  std::map<std::string, Kept> pages_;  // by worker id
  size_t bytes_ = 0;                   // of all of them
};

}  // namespace longhaul::coordinator
