// The row `voting` of the store: which witness counts. Thread-safe, but for one writer at a time.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

// Returns the witness that counts by the store of a state directory; one without id if there is
// none, or no store.
StatusOr<VotingWitness> ReadVoting(const std::string& state_dir);

class Voting {
 public:
  // `journal` must outlive this object.
  static StatusOr<std::unique_ptr<Voting>> Open(const std::string& state_dir, Journal* journal);
  // Stores that `witness` counts from now on; without id: none counts. Waits for the other
  // coordinator as every change does.
  Status Set(const VotingWitness& witness);

 private:
  Voting(sqlite::Database database, Journal* journal)
      : database_(std::move(database)), journal_(journal) {}

  sqlite::Database database_;
  Journal* const journal_;
};

}  // namespace longhaul::coordinator
