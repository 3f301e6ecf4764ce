// Accounts for the time of one step at one stage. Used on the compute thread.
#pragma once

#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/pipeline/trace_log.h"

namespace longhaul::worker {

// The parts add up to the step. The executor's own overhead counts to the next part.
struct StepTimes {
  absl::Duration forward, backward;
  absl::Duration optimizer;  // with the norm, and the snapshot for a checkpoint
  // Idle time while a missing input delayed a forward, or a missing message from the stage before
  // delayed the optimizer.
  absl::Duration wait_input;
  // Idle time while waiting for gradients or for the norm of later stages. Includes reducing and
  // coding for other replicas.
  absl::Duration wait_gradient;
  // The part of both waits in which the stage's codec thread was busy: the codec delayed the stage,
  // directly or because its output was not sent yet.
  absl::Duration wait_codec;
};

// Measures from the end of the previous span (`*mark`) to its own end. Adds the time to `*sum` and
// a span to `log` (may be null), and moves `*mark`.
class ScopedSpan {
 public:
  ScopedSpan(MonoTime* mark, absl::Duration* sum, TraceLog* log, v1::Span::Kind kind,
             Slice slice = {})
      : mark_(mark), sum_(sum), log_(log), kind_(kind), slice_(slice) {}
  ~ScopedSpan() {
    const MonoTime begin = std::exchange(*mark_, Now());
    *sum_ += *mark_ - begin;
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
