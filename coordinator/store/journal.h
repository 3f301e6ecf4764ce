// The changes of a store on their way to whoever keeps a copy of it. Every transaction of the
// store and of its members goes through Write.
//
//   LH_RETURN_IF_ERROR(journal.Write(database, [&] { return insert.Bind(1, name).Run(); }));
//
// Thread-safe.
#ifndef LONGHAUL_COORDINATOR_STORE_JOURNAL_H_
#define LONGHAUL_COORDINATOR_STORE_JOURNAL_H_

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
  // The next change, which is on this machine's disk. In the order of the numbers; returns at once.
  virtual void Changed(v1::StoreChange change) = 0;
  // Returns when it has the change, or when nobody waits for it any more.
  virtual void Await(uint64_t number) = 0;
};

class Journal {
 public:
  // `write` in one transaction of `database`. When this returns OK, the follower has it, too.
  Status Write(sqlite::Database& database, absl::FunctionRef<Status()> write);

  // From now on `follower` hears of every change behind those that the store has while `begin` runs
  // with the number of its last change. kFailedPrecondition: there is another, which does not go.
  Status Follow(const std::shared_ptr<JournalFollower>& follower,
                absl::FunctionRef<Status(uint64_t number)> begin);
  // It hears of nothing more.
  void Unfollow(const JournalFollower* follower);

 private:
  std::mutex mutex_;  // of all below; held for a whole transaction, so changes have one order
  std::shared_ptr<JournalFollower> follower_;
  uint64_t number_ = 0;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_JOURNAL_H_
