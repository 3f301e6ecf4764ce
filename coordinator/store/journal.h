// Passes the changes of the store to a follower, which keeps a copy of the store. Every transaction
// of the store and of Members uses Write.
//
//   LH_RETURN_IF_ERROR(journal.Write(database, [&] { return insert.Args(name).Run(); }));
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "coordinator/store/sqlite.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

class JournalFollower {
 public:
  virtual ~JournalFollower() = default;
  // Takes the next change, which this store has committed. Called in the order of changes, on the
  // thread that writes. Must return at once: other writers wait meanwhile.
  virtual void Changed(v1::StoreChange change) = 0;
  // Blocks the thread that wrote the change `number` until the follower has confirmed the change,
  // or its confirmation is no longer needed.
  virtual void Await(uint64_t number) = 0;
};

class Journal {
 public:
  // Runs `write` in one transaction. When Write returns OK, the change is committed here. If there
  // is a follower, Await has returned for this change, too. Returns the error of `write` or of the
  // commit; then nothing has changed.
  Status Write(sqlite::Database& database, absl::FunctionRef<Status()> write);

  // Runs `begin` while no transaction runs. `number` is that of the last change that any follower
  // got; 0: none did. If `begin` returns OK, `follower` gets every later change, and the journal
  // keeps it alive until Unfollow; else returns the error of `begin`. kFailedPrecondition: there is
  // another follower, which stays.
  Status Follow(const std::shared_ptr<JournalFollower>& follower,
                absl::FunctionRef<Status(uint64_t number)> begin);
  // Gives `follower` no further changes. Does nothing if it is not the current follower. Await may
  // still be called for an earlier change.
  void Unfollow(const JournalFollower* follower);

 private:
  // guards the members below; held for a whole transaction, so changes have one order
  std::mutex mutex_;
  std::shared_ptr<JournalFollower> follower_;
  uint64_t number_ = 0;
};

}  // namespace longhaul::coordinator
