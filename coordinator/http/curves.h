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

// The values of one kind over a run's steps. Steps ascend; values are finite.
struct Curve {
  std::string name;  // the field of v1::StepRecord
  std::vector<uint64_t> steps;
  std::vector<double> values;
};

// The part of the curves that a viewer requests: the steps from `first` to `last`, both included,
// and the maximum number of points of each curve.
struct CurveWindow {
  static constexpr size_t kMostPoints = 2000;
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  size_t points = kMostPoints;  // at least 4
};

// Returns the points of a curve inside the window. If there are more than `window.points`, the
// first and the last stay, and the points between them are cut into equal parts. Each part keeps
// its first minimum and its first maximum. Pure.
Curve Sample(const Curve& curve, const CurveWindow& window);

// Reads steps from the store, and keeps the curves of the kRuns most recently requested runs. So a
// later request reads little more than the new steps. Thread-safe; concurrent requests for the same
// run wait for each other.
class CurveBook {
 public:
  static constexpr size_t kRuns = 8;  // 100,000 steps of a run take about 6 MB
  // As Source::Steps (source.h): returns at most `limit` records from `step` on, in ascending
  // order. Called on the thread that calls Of.
  using ReadSteps = std::function<StatusOr<std::vector<v1::StepRecord>>(
      const RunId& run, uint64_t step, size_t limit)>;
  explicit CurveBook(ReadSteps read) : read_(std::move(read)) {}

  // Returns the run's curves up to its newest step, `run.step()`, reduced by Sample. The store may
  // hold later steps, which an earlier attempt ("epoch") trained and lost. They are left out until
  // they are trained again. Curves without points are left out. Errors: those of `read`.
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

// Returns a JSON object. Values are rounded to seven significant digits.
//   {"run": ..., "step": ..., "epoch": ...,
//    "curves": {"loss": {"steps": [...], "values": [...]}, ...}}
std::string CurvesJson(const v1::RunStatus& run, const std::vector<Curve>& curves);

}  // namespace longhaul::coordinator
