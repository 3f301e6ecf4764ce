// The curves of a run over its steps, as few points as a screen can show.
#ifndef LONGHAUL_COORDINATOR_HTTP_CURVES_H_
#define LONGHAUL_COORDINATOR_HTTP_CURVES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Values over ascending steps. Values are finite.
struct Curve {
  std::string name;  // the field of v1::StepRecord
  std::vector<uint64_t> steps;
  std::vector<double> values;
};

// Which steps are asked for, and by how many points each curve may be shown.
struct CurveWindow {
  static constexpr size_t kMostPoints = 2000;
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  size_t points = kMostPoints;  // at least 4
};

// The part of a curve within the window. Where this has more points than `window.points`, its steps
// are cut into equal parts, and each part gives its first point of least and of greatest value. The
// first and the last point always stay. Pure.
Curve Sample(const Curve& curve, const CurveWindow& window);

// Reads steps from the store, and keeps the curves of the runs that were asked for last, so that
// only new steps are read again. Thread-safe; callers who ask for one run wait for each other.
class CurveBook {
 public:
  static constexpr size_t kRuns = 8;  // kept; 100,000 steps of one are about 6 MB
  using ReadSteps = std::function<StatusOr<std::vector<v1::StepRecord>>(
      const RunId& run, uint64_t step, size_t limit)>;
  explicit CurveBook(ReadSteps read) : read_(std::move(read)) {}

  // Of the steps that the run's newest epoch has behind it. Steps that were given up are left out
  // until they are trained again. Curves without points are left out. kDataLoss.
  StatusOr<std::vector<Curve>> Of(const v1::RunStatus& run, const CurveWindow& window);

 private:
  struct Kept {
    std::mutex mutex;  // of the rest but used
    uint64_t epoch = 0;
    uint64_t next = 0;  // the step to read on from
    std::vector<Curve> curves;
    uint64_t used = 0;  // of CurveBook::mutex_
  };
  std::shared_ptr<Kept> Find(const std::string& run);
  Status ReadOn(const v1::RunStatus& run, Kept* kept) const;

  const ReadSteps read_;
  std::mutex mutex_;  // of all below
  std::map<std::string, std::shared_ptr<Kept>> runs_;
  uint64_t uses_ = 0;
};

// Values with seven digits:
// {"run": ..., "step": ..., "curves": {"loss": {"steps": [...], "values": [...]}, ...}}
std::string CurvesJson(const v1::RunStatus& run, const std::vector<Curve>& curves);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_CURVES_H_
