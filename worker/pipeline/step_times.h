// Where the time of one step at one stage went. On the compute thread.
#ifndef LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_
#define LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/pipeline/trace_log.h"

namespace longhaul::worker {

// They add up to the step, but for what the executor itself takes.
struct StepTimes {
  absl::Duration forward, backward;
  absl::Duration optimizer;      // with the norm, and the snapshot for a checkpoint
  absl::Duration wait_input;     // idle, and a forward could have run had its input been there
  absl::Duration wait_gradient;  // idle for gradients (or for the step's norm)
  // Of either wait, the part in which the stage's codec thread was at work: it is what held it up,
  // directly or by what it has not sent.
  absl::Duration wait_codec;
};

// Adds its own life time to `*sum`, and to `log` (may be null) as a span.
class ScopedSpan {
 public:
  ScopedSpan(absl::Duration* sum, TraceLog* log, v1::Span::Kind kind, Microbatch microbatch = {})
      : sum_(sum), log_(log), kind_(kind), microbatch_(microbatch), begin_(Now()) {}
  ~ScopedSpan() {
    const MonoTime end = Now();
    *sum_ += longhaul::operator-(end, begin_);
    if (log_ != nullptr) {
      log_->Add({.kind = kind_, .microbatch = microbatch_, .begin = begin_, .end = end});
    }
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  absl::Duration* sum_;
  TraceLog* log_;
  v1::Span::Kind kind_;
  Microbatch microbatch_;
  MonoTime begin_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_
