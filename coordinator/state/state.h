// The coordinator's logic: a pure state machine. Each tick takes events (events.h), and returns
// writes for the store and commands (commands.h).
//
// The state machine has no I/O, no threads, no clock and no randomness of its own; ids and secrets
// arrive with the events. No message of a worker or user makes it crash: invalid messages are
// refused, or dropped and counted. Invariants are checked at the end of ticks in all builds: of
// every tick, or of one of several where there are hundreds of workers.
// The shell (coordinator/rpc) does the I/O and all long work. It stores a tick's writes in one
// transaction *before* it carries out the tick's commands in order.
//
// The states of a run:
//   queued -> planning -> preparing -> running -> finishing -> done
//   planning -> queued
//   preparing, running, finishing -> recovering -> preparing | queued
//   every state above except done -> stopped; except done and queued -> failed
//   done, stopped, failed -> queued, if a user resumes the run
//
// The transitions are one table (ledger/transitions.h); `longhaul-coordinator --dump-states` draws
// the table. The machine consists of components (state.cc lists them). They share the Ledger, and
// each keeps data of its own. A component uses only its own folder and the folders to the left:
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
  // `stored` and `next_event_sequence`, the number of the next logged event, come from the store.
  State(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence, MonoTime now);
  ~State();

  // Call this when events have arrived, at TickResult::wake_at at the latest. Not thread-safe.
  // `unix_ms`: the wall clock, for records only; may jump.
  TickResult Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms);

  // Answers queries. Must not be used during a tick. Valid as long as this object.
  const Views& views() const;

 private:
  struct Components;
  std::unique_ptr<Components> components_;
};

}  // namespace longhaul::coordinator
