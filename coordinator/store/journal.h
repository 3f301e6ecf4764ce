// Gives the changes of the store their order, keeps the newest ones in the table `changes`, and has
// each secured before it is committed: if there is a replicator (replicator.h), the other
// coordinator stores a change first. Every transaction of the store, of Members and of Audit uses
// Write.
//
//   LH_RETURN_IF_ERROR(journal.Write(database, [&] { return insert.Args(name).Run(); }));
//
// A change, its number and its chain are in one transaction, so a store always knows where it
// stands. Thread-safe. One change is under way at a time; others wait for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "coordinator/store/change_log.h"
#include "coordinator/store/journal_core.h"
#include "coordinator/store/replicator.h"
#include "coordinator/store/sqlite.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// What became of a transaction. `change` 0: it changed no row.
struct Written {
  uint64_t change = 0;
  Held held = Held::kHere;
};

// What the first change of a term says of it (table `terms`).
struct TermBegun {
  std::string tenure;   // 16 bytes
  std::string seat;     // the leader's
  std::string address;  // host:port where it serves
};

class Journal {
 public:
  Journal() = default;
  ~Journal() { Close(); }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Reads where the store stands, from its own connection. Call it once, before all others.
  Status Open(sqlite::Database& database);

  // Runs `write` in one transaction, and names what it changes. Returns once the change is secured
  // and committed. Returns the error of `write`, of the replicator or of the commit; then nothing
  // has changed. But a secured change, which the other coordinator may have stored, is committed
  // whatever it takes: if the disk refuses, it is tried again each second until Close. `written`:
  // may be null. kFailedPrecondition: BeginTerm has to come first. kAborted: this coordinator leads
  // no more.
  Status Write(sqlite::Database& database, absl::FunctionRef<Status()> write,
               Written* written = nullptr);

  // From now on each change is of the replicator's term, and is secured by it. Null: none secures
  // them, and they are of the newest term that the store knows. Waits for the change under way. The
  // replicator must outlive its use.
  void SetReplicator(Replicator* replicator);
  // Begins the replicator's term with a change that says so. The tail, which this store logged as a
  // follower, is applied in the same transaction: neither counts before both are committed. Until
  // then no other change is possible, if there is a tail.
  Status BeginTerm(sqlite::Database& database, const TermBegun& begun, Written* written = nullptr);

  // The newest committed change, without the tail.
  History committed() const;
  Standing standing() const;
  // Whether every change has to be synced (Replicator::needs_sync).
  bool needs_sync() const;
  // Not OK: a change that is secured cannot be committed, and the process has to end.
  Status failure() const;
  // `call` runs whenever the disk refuses a secured change, on the thread that writes. It may make
  // room. Call it before other threads use the journal.
  void WhenRefused(std::function<void()> call) { when_refused_ = std::move(call); }
  // Ends waits for the disk: for a process that ends. Writes that come later are possible.
  void Close();

 private:
  std::unique_lock<std::mutex> LockToWrite();
  Status WriteLocked(sqlite::Database& database, absl::FunctionRef<Status()> write,
                     bool begins_term, Written* written);
  Status ApplyTail(sqlite::Database& database);
  Status Keep(sqlite::Database& database, const NamedChange& named);
  // Commits a secured change that the disk refused.
  Status Insist(sqlite::Database& database, const NamedChange& named, Status why);

  // held for a whole transaction, so changes have one order; guards the members below
  std::mutex mutex_;
  std::atomic<Replicator*> replicator_ = nullptr;  // set with mutex_ held
  ChangeTrimmer trimmer_;
  std::function<void()> when_refused_;

  mutable std::mutex now_mutex_;  // guards the members below; held for moments
  std::condition_variable closed_;
  Standing standing_;
  Status failure_;
  bool closing_ = false;
};

}  // namespace longhaul::coordinator
