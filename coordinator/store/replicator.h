// How the journal (journal.h) learns that it may commit a change. The leader's seat
// (coordinator/lead) implements it: it sends the change to the other coordinator, and knows whether
// this one may go on alone.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "coordinator/lead/history.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

enum class Held : uint8_t {
  kHere,  // only this store has the change
  kBoth,  // the other coordinator has stored it, too
};

class Replicator {
 public:
  virtual ~Replicator() = default;
  // The term of this leader, for the next change.
  virtual uint64_t term() const = 0;
  // Blocks until the change may be committed here. The transaction is open meanwhile, and no other
  // change begins. `change` has its term, number and chain. After OK the journal commits, whatever
  // it takes. kAborted: this coordinator leads no more; the journal rolls back, and no later change
  // succeeds. Must return when the process is to end, with kAborted, too.
  virtual StatusOr<Held> Secure(const v1::StoreChange& change) = 0;
  // Whether each change has to be on disk before it counts as committed here. Else only changes of
  // runs and events are synced. False is for a leader that no other coordinator can succeed: a
  // power cut may then take the newest steps and log lines.
  virtual bool needs_sync() const { return true; }
  // The change with this history is committed here. Called in the order of changes; returns at
  // once.
  virtual void Committed(const History& history) = 0;
};

}  // namespace longhaul::coordinator
