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
  // Gets the next change, which is committed here. Called in the order of changes. Must return at
  // once.
  virtual void Changed(v1::StoreChange change) = 0;
  // Waits until the follower has confirmed the change `number`, or its confirmation is no longer
  // needed.
  virtual void Await(uint64_t number) = 0;
};

class Journal {
 public:
  // Runs `write` in one transaction. When it returns OK, the change is committed here, and Await
  // has returned for it if there is a follower.
  Status Write(sqlite::Database& database, absl::FunctionRef<Status()> write);

  // Runs `begin` with the number of the store's last change, while no transaction runs. If it
  // returns OK, `follower` gets every change from then on. kFailedPrecondition: there is another
  // follower, which stays.
  Status Follow(const std::shared_ptr<JournalFollower>& follower,
                absl::FunctionRef<Status(uint64_t number)> begin);
  // `follower` gets no further changes.
  void Unfollow(const JournalFollower* follower);

 private:
  // guards the members below; held for a whole transaction, so changes have one order
  std::mutex mutex_;
  std::shared_ptr<JournalFollower> follower_;
  uint64_t number_ = 0;
};

}  // namespace longhaul::coordinator
