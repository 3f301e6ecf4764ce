// The coordinator's logic: a pure state machine. Tick(events, now) -> store writes, commands,
// replies.
//
// The state machine has no I/O, no threads, no clock and no randomness of its own; ids and secrets
// arrive with the events. No message of a worker or user makes it crash: invalid ones are refused,
// or dropped and counted. Invariants are checked at the end of every tick in all builds. The shell
// (coordinator/rpc) does the I/O and all long work: it writes `writes` in one transaction *before*
// it carries out `commands`, in order.
//
//   queued -> planning -> preparing -> running -> finishing -> done
//      any of them before done -> stopped; any but queued -> failed(reason)
//   planning -> queued
//   preparing, running, finishing -> recovering -> preparing | queued
//   done, stopped, failed -> queued, if a user resumes the run
//
// The transitions are one table (ledger/transitions.h); `longhaul-coordinator --dump-states` draws
// it. The machine consists of components (state.cc lists them). They share the Ledger, and each
// keeps data of its own. A component uses those of its own folder and of folders to the left:
//
//   ledger <- workers <- life <- shards <- planning, recovery <- queries <- sessions
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "coordinator/state/commands.h"
#include "coordinator/state/events.h"
#include "coordinator/state/options.h"
#include "coordinator/state/queries/views.h"
#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

class State {
 public:
  // `stored` and `next_event_sequence` come from the store.
  State(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence, MonoTime now);
  ~State();

  // `unix_ms`: the wall clock, for records only; may jump.
  TickResult Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms);

  // For queries between ticks.
  const Views& views() const;

 private:
  struct Components;
  std::unique_ptr<Components> components_;
};

}  // namespace longhaul::coordinator
