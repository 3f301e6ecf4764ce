// `longhaul trace`: asks stages for their traces, collects them in a TraceBook, and answers the
// user.
#pragma once

#include <cstdint>

#include "coordinator/state/books/trace_book.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Traces {
 public:
  explicit Traces(Ledger& ledger) : ledger_(ledger) {}

  void On(event::TraceAsked& asked);
  void OnTrace(const Worker& worker, const v1::WorkerMessage& message);
  // Gives up traces of stages that have not answered in time.
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
