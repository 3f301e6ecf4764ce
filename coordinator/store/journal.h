// Passes the store's changes to a follower that keeps a copy of it. Every transaction of the store
// and of Members uses Write.
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
  // The next change, which is on this machine's disk. Called in order; returns at once.
  virtual void Changed(v1::StoreChange change) = 0;
  // Returns when the follower has the change, or when its confirmation is no longer needed.
  virtual void Await(uint64_t number) = 0;
};

class Journal {
 public:
  // Runs `write` in one transaction. When it returns OK, the follower has the change as well.
  Status Write(sqlite::Database& database, absl::FunctionRef<Status()> write);

  // From now on `follower` gets every change. `begin` runs with the number of the last change that
  // the store already has, while no transaction runs. kFailedPrecondition: there is another
  // follower, which stays.
  Status Follow(const std::shared_ptr<JournalFollower>& follower,
                absl::FunctionRef<Status(uint64_t number)> begin);
  // The follower gets no further changes.
  void Unfollow(const JournalFollower* follower);

 private:
  // guards the members below; held for a whole transaction, so changes have one order
  std::mutex mutex_;
  std::shared_ptr<JournalFollower> follower_;
  uint64_t number_ = 0;
};

}  // namespace longhaul::coordinator
