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
  // Makes the folder and takes it until the object's end, or the process's however it ends. If it
  // has results of the same sweep, these are taken over; of another one: kFailedPrecondition that
  // says what differs and what to do, as for a folder that another sweep is at work in. `fresh` has
  // all points, waiting or impossible. `retry_failed`: points that failed before wait again.
  static StatusOr<std::unique_ptr<ResultsStore>> Open(const std::string& folder, SweepResults fresh,
                                                      bool retry_failed);
  ResultsStore(const ResultsStore&) = delete;
  ResultsStore& operator=(const ResultsStore&) = delete;
  ~ResultsStore();

  const SweepResults& results() const { return results_; }
  bool goes_on() const { return goes_on_; }  // there were results before
  // The point that has this id gets its result, and the files are written.
  Status Record(PointResult result);
  // Writes the files as they are now: results.json first, which alone is read again.
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
