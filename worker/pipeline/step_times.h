// Where the time of one step at one stage went. On the compute thread.
#ifndef LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_
#define LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::worker {

struct StepTimes {
  absl::Duration forward, backward, optimizer;
  absl::Duration wait_input;     // idle, and a forward could have run had its input been there
  absl::Duration wait_gradient;  // idle for gradients (or for the step's norm)
};

// Adds its own life time to `*sum`.
class ScopedTimer {
 public:
  explicit ScopedTimer(absl::Duration* sum) : sum_(sum), begin_(Now()) {}
  ~ScopedTimer() { *sum_ += longhaul::operator-(Now(), begin_); }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  absl::Duration* sum_;
  MonoTime begin_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_
