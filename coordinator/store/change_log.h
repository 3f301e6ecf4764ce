// The tables `changes` and `applied` of a store: its newest changes, and which of them its other
// tables have. The journal writes them on a leader (journal.h), StateCopy on a follower.
//
// Not thread-safe. Errors: those of the store (store.h). These functions never record what they do
// (sqlite::Database::WriteDownIn), and run within the caller's transaction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "coordinator/store/journal_core.h"
#include "coordinator/store/sqlite.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// Returns where the store stands. kDataLoss: the tables contradict each other.
StatusOr<Standing> ReadStanding(sqlite::Database& database);
// Returns the change of this number; nullopt if it is not kept. kDataLoss: it cannot be read.
StatusOr<std::optional<v1::StoreChange>> ReadChange(sqlite::Database& database, uint64_t number);
// Applies a logged change to the other tables, and notes it there.
Status ApplyLogged(sqlite::Database& database, uint64_t number);
// Deletes the logged changes after this one.
Status CutChanges(sqlite::Database& database, uint64_t number);
// Adds a change, in place of one with the same number.
Status LogChange(sqlite::Database& database, const NamedChange& change);
// Notes that the tables have this change and all before it.
Status NoteApplied(sqlite::Database& database, const History& history);

// Limits of what a store keeps of its changes. Where one is exceeded, old changes are deleted until
// a quarter is free.
struct KeptChanges {
  uint64_t changes = 100'000;
  uint64_t bytes = uint64_t{64} << 20;
};

// Deletes old changes.
class ChangeTrimmer {
 public:
  static constexpr uint64_t kAtOnce = 1'000;  // at most so many with one transaction

  explicit ChangeTrimmer(KeptChanges kept = {}) : kept_(kept) {}
  // Counts what is there. Call it before Added.
  Status Count(sqlite::Database& database);
  // Call it within the transaction that logs a change of `bytes` bytes, after LogChange. Changes
  // after `keep_after` stay in any case, and so does the newest.
  Status Added(sqlite::Database& database, uint64_t bytes, uint64_t keep_after);

 private:
  KeptChanges kept_;
  uint64_t changes_ = 0, bytes_ = 0;  // kept now, but for transactions that failed
  bool trims_ = false;                // a limit was exceeded, and a quarter is not free yet
  uint64_t pause_ = 0;                // so many changes until it is tried again
};

// Reads a store's changes for a follower, beside whoever writes the store, and without the
// journal's lock. Threads: one.
class ChangeReader {
 public:
  // `store`: path of the database. Begins a read transaction: all that follows is of this moment.
  static StatusOr<ChangeReader> Begin(const std::string& store);
  // The newest committed change.
  const History& newest() const { return newest_; }
  // Finds out from where a follower that stands there can resume (ResumeAfter). From then on Next
  // returns what it lacks. nullopt: it needs a whole copy. `follower` absent: it has no store.
  StatusOr<std::optional<uint64_t>> Resume(const std::optional<Standing>& follower);
  // Returns the next committed change after that one; nullopt: there are no more.
  StatusOr<std::optional<v1::StoreChange>> Next();

 private:
  ChangeReader(sqlite::Database database, History newest)
      : database_(std::move(database)), newest_(newest) {}
  sqlite::Database database_;
  History newest_;
  uint64_t next_ = 0;  // number of the next change; 0: Resume has found none
};

}  // namespace longhaul::coordinator
