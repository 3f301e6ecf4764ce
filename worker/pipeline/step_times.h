// Where the time of one step at one stage went. On the compute thread.
#ifndef LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_
#define LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_

#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/pipeline/trace_log.h"

namespace longhaul::worker {

// They add up to the step: what the executor itself takes counts to what it did next.
struct StepTimes {
  absl::Duration forward, backward;
  absl::Duration optimizer;  // with the norm, and the snapshot for a checkpoint
  // Idle, and a forward could have run had its input been there, or the optimizer had the word come
  // from above.
  absl::Duration wait_input;
  // Idle for gradients, or for the norm of the stages below; with what is reduced and coded for
  // other replicas.
  absl::Duration wait_gradient;
  // Of either wait, the part in which the stage's codec thread was at work: it is what held it up,
  // directly or by what it has not sent.
  absl::Duration wait_codec;
};

// Adds the time from the end of the one before it to its own end to `*sum`, and to `log` (may be
// null) as a span. `*mark` is that end.
class ScopedSpan {
 public:
  ScopedSpan(MonoTime* mark, absl::Duration* sum, TraceLog* log, v1::Span::Kind kind,
             Slice slice = {})
      : mark_(mark), sum_(sum), log_(log), kind_(kind), slice_(slice) {}
  ~ScopedSpan() {
    const MonoTime begin = std::exchange(*mark_, Now());
    *sum_ += longhaul::operator-(*mark_, begin);
    if (log_ != nullptr) {
      log_->Add({.kind = kind_, .slice = slice_, .begin = begin, .end = *mark_});
    }
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  MonoTime* mark_;
  absl::Duration* sum_;
  TraceLog* log_;
  v1::Span::Kind kind_;
  Slice slice_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_STEP_TIMES_H_
