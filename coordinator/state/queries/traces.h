// `longhaul trace`: asks the stages of a run what they did when in their last steps, collects these
// traces in a TraceBook, and answers the user.
#pragma once

#include <cstdint>

#include "coordinator/state/books/trace_book.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Traces {
 public:
  explicit Traces(Ledger& ledger) : ledger_(ledger) {}

  // The reply is sent when all stages have answered. kNotFound: no such run. kFailedPrecondition: a
  // stage has no finished step. kResourceExhausted: too many traces are under way. kUnavailable: a
  // worker is not connected. kDeadlineExceeded: a stage did not answer within kTraceLimit.
  void On(event::TraceAsked& asked);
  void OnTrace(const Worker& worker, const v1::WorkerMessage& message);
  // Gives up traces that some stage has not answered in time. Call this in every tick.
  void CheckTimers();
  MonoTime NextWake() const { return book_.NextWake(); }

 private:
  // Asks the stages. The reply is sent when all have answered.
  Status Begin(const event::TraceAsked& asked);
  void End(uint64_t id, const Status& why);

  Ledger& ledger_;
  TraceBook book_;
};

}  // namespace longhaul::coordinator
