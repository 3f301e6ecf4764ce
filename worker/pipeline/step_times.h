// Accounts for the time of one step at one stage. Used on the compute thread.
#pragma once

#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/pipeline/trace_log.h"

namespace longhaul::worker {

// The parts, which do not overlap, add up to the step's time. Time between two parts counts to the
// second one.
struct StepTimes {
  absl::Duration forward, backward;
  absl::Duration optimizer;  // includes the norm and the snapshot for a checkpoint
  // Time in which the stage waited for the input of a forward, or for the final norm from the
  // previous stage. Without wait_codec.
  absl::Duration wait_input;
  // Time in which the stage waited for gradients, for the norm of later stages, or for other
  // replicas. Includes the work of the exchange with other replicas. Without wait_codec.
  absl::Duration wait_gradient;
  // The part of all waits in which the codec thread was busy; not counted above. The codec thread
  // delayed the stage, directly or because its output had not been sent yet.
  absl::Duration wait_codec;
};

// Measures the time from `*mark`, where the previous span ended, to the destruction of this object.
// Then adds the time to `*sum` and a span to `log`, and sets `*mark` to the end of the span. The
// pointers must outlive this object. `log` may be null: no span is recorded.
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
