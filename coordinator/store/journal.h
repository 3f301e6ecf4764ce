// Passes the store's changes on to a follower that keeps a copy of it. Every transaction of the
// store and of Members goes through Write.
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
  // Returns when the follower has the change, or when nobody waits for it any more.
  virtual void Await(uint64_t number) = 0;
};

class Journal {
 public:
  // Runs `write` in one transaction. When it returns OK, the follower has the change as well.
  Status Write(sqlite::Database& database, absl::FunctionRef<Status()> write);

  // Makes `follower` hear of every change from now on. `begin` runs with the number of the last
  // change that the store already has, while no transaction runs. kFailedPrecondition: there is
  // another follower, which stays.
  Status Follow(const std::shared_ptr<JournalFollower>& follower,
                absl::FunctionRef<Status(uint64_t number)> begin);
  // The follower hears of nothing more.
  void Unfollow(const JournalFollower* follower);

 private:
  // guards what follows; held for a whole transaction, so changes have one order
  std::mutex mutex_;
  std::shared_ptr<JournalFollower> follower_;
  uint64_t number_ = 0;
};

}  // namespace longhaul::coordinator
