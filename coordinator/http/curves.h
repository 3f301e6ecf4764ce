// A run's curves over its steps, reduced to the number of points that a screen can show.
#pragma once

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

// Finite values over ascending steps.
struct Curve {
  std::string name;  // the field of v1::StepRecord
  std::vector<uint64_t> steps;
  std::vector<double> values;
};

// The range of steps, and the maximum number of points of each curve.
struct CurveWindow {
  static constexpr size_t kMostPoints = 2000;
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  size_t points = kMostPoints;  // at least 4
};

// Returns the part of a curve inside the window. If it has more than `window.points` points, its
// steps are cut into equal parts, and each part keeps its first minimum and first maximum. The
// first and the last point always stay. Pure.
Curve Sample(const Curve& curve, const CurveWindow& window);

// Reads steps from the store, and keeps the curves of the most recently requested runs, so that
// only new steps are read. Thread-safe; concurrent requests for the same run wait for each other.
class CurveBook {
 public:
  static constexpr size_t kRuns = 8;  // 100,000 steps of a run take about 6 MB
  using ReadSteps = std::function<StatusOr<std::vector<v1::StepRecord>>(
      const RunId& run, uint64_t step, size_t limit)>;
  explicit CurveBook(ReadSteps read) : read_(std::move(read)) {}

  // Returns curves of the steps that lead to the run's newest attempt ("epoch"). Leaves out
  // abandoned steps, until they are trained again, and curves without points. kDataLoss.
  StatusOr<std::vector<Curve>> Of(const v1::RunStatus& run, const CurveWindow& window);

 private:
  struct Kept {
    std::mutex mutex;  // guards the rest except used
    uint64_t epoch = 0;
    uint64_t next = 0;  // the next step to read
    std::vector<Curve> curves;
    uint64_t used = 0;  // guarded by CurveBook::mutex_
  };
  std::shared_ptr<Kept> Find(const std::string& run);
  Status ReadOn(const v1::RunStatus& run, Kept* kept) const;

  const ReadSteps read_;
  std::mutex mutex_;  // guards the members below
  std::map<std::string, std::shared_ptr<Kept>> runs_;
  uint64_t uses_ = 0;
};

// Writes values with seven digits:
// {"run": ..., "step": ..., "curves": {"loss": {"steps": [...], "values": [...]}, ...}}
std::string CurvesJson(const v1::RunStatus& run, const std::vector<Curve>& curves);

}  // namespace longhaul::coordinator
