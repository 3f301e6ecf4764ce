// A follower's state directory: a copy of the leader's store, secrets and blobs. The copy logs a
// change before it applies it (coordinator/store/journal_core.h), so it knows where it stands when
// the process begins anew, and resumes from there.
//
// Not thread-safe, except blobs(). Errors that are not named are the disk's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/change_log.h"
#include "coordinator/store/journal_core.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/state_dir_lock.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

class StateCopy {
 public:
  // Locks the directory, and creates it if needed. `taken_over`: another coordinator leads the runs
  // in this directory, so the copy may replace them. kFailedPrecondition: another process uses the
  // directory, or it holds a coordinator's own runs and `taken_over` is false. A store that cannot
  // be used is no error: a whole copy replaces it.
  static StatusOr<StateCopy> Open(const std::string& state_dir, bool taken_over);

  // Where the store stands. nullopt: there is none, or it is being replaced: only a whole copy
  // helps. The follower's hello says it.
  std::optional<Standing> standing() const;
  // Has the next stream bring a whole copy: the store differs from the leader's.
  void Distrust();

  // Call Begin first on each stream. Secrets are replaced at once. If `begin` has resume_after,
  // changes follow. Else call Append until complete(); the store before stays until all bytes have
  // come. After an error, go on with a new Begin. kDataLoss: this store does not have the change
  // after which the leader resumes.
  Status Begin(const v1::FollowedMessage::Begin& begin);
  // Appends the next bytes of the store file. kDataLoss: more bytes came than Begin announced, or
  // they are no store.
  Status Append(std::string_view bytes);
  // True if all bytes of the store have arrived. Changes can then be logged.
  bool complete() const { return database_.has_value() && missing_bytes_ == 0; }

  // Logs the leader's next change, and applies what is logged up to the change `committed`. Both
  // are on disk, in one transaction, when this returns OK. A change in place of one of the tail
  // replaces it and all after it. kDataLoss: the change does not follow what is logged; the store
  // is distrusted if it differs from the leader's.
  Status Log(const v1::StoreChange& change, uint64_t committed);
  // Applies what is logged up to this change. Does nothing if that is applied already. kDataLoss:
  // the store is damaged.
  Status Apply(uint64_t committed);
  // Forgets logged changes after this one. kInternal: they are applied.
  Status CutTail(uint64_t number);

  // Held while the file of the store is replaced. Hold it to read the file on another thread. Lives
  // as long as this object.
  std::mutex& replacing() { return *replacing_; }

  // Returns the store of one kind of blobs: users' data or copies of checkpoint shards. Valid as
  // long as this object. Each store is thread-safe.
  const BlobStore& blobs(v1::BlobFolder folder) const { return *blobs_[folder]; }

 private:
  StateCopy(std::string state_dir, StateDirLock lock)
      : state_dir_(std::move(state_dir)), lock_(std::move(lock)) {}
  Status OpenDatabase(sqlite::Database database);
  Status Resume(uint64_t after);
  Status ApplyUpTo(uint64_t committed, Standing* standing);
  Status Complete();

  std::string state_dir_;
  StateDirLock lock_;
  std::unique_ptr<std::mutex> replacing_ = std::make_unique<std::mutex>();
  std::array<std::unique_ptr<BlobStore>, 2> blobs_;
  UniqueFd incoming_;
  uint64_t missing_bytes_ = 0;
  std::optional<sqlite::Database> database_;
  Standing standing_;  // that of database_
  ChangeTrimmer trimmer_;
};

}  // namespace longhaul::coordinator
