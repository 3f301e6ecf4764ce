// The folder of a sweep's results: results.json, results.csv and report.html, written anew, each
// atomically, after every point. One process at a time holds it.
#ifndef LONGHAUL_DEPLOY_SWEEP_RESULTS_STORE_H_
#define LONGHAUL_DEPLOY_SWEEP_RESULTS_STORE_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "deploy/sweep/results.h"

namespace longhaul::cli {

// From one thread.
class ResultsStore {
 public:
  // Makes the folder and locks it until the object or the process ends. Results of the same sweep
  // in it are taken over. kFailedPrecondition for results of another sweep, saying what differs and
  // what to do, or if another sweep is using the folder. `fresh` has all points, waiting or
  // impossible. `retry_failed`: points that failed before wait again.
  static StatusOr<std::unique_ptr<ResultsStore>> Open(const std::string& folder, SweepResults fresh,
                                                      bool retry_failed);
  ResultsStore(const ResultsStore&) = delete;
  ResultsStore& operator=(const ResultsStore&) = delete;
  ~ResultsStore();

  const SweepResults& results() const { return results_; }
  bool goes_on() const { return goes_on_; }  // there were results before
  // Stores the result of the point with its id, and writes the files.
  Status Record(PointResult result);
  // Writes the files. results.json is first: it is the only one that is read again.
  Status Write() const;
  std::string ReportPath() const { return folder_ + "/report.html"; }

 private:
  ResultsStore(std::string folder, int lock_fd, SweepResults results)
      : folder_(std::move(folder)), lock_fd_(lock_fd), results_(std::move(results)) {}

  const std::string folder_;
  const int lock_fd_;
  SweepResults results_;
  bool goes_on_ = false;
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_RESULTS_STORE_H_
