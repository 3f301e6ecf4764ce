// A standby's state directory while the standby follows: a copy of the coordinator's store, secrets
// and blobs. Not thread-safe, except blobs().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/state_dir_lock.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

class StateCopy {
 public:
  // Locks the directory, and creates it if needed. `taken_over`: another coordinator has taken over
  // the runs in this directory, so the copy may replace them. kFailedPrecondition: another process
  // uses the directory, or it holds a coordinator's own runs and `taken_over` is false.
  static StatusOr<StateCopy> Open(const std::string& state_dir, bool taken_over);

  // Call Begin, then Append until complete(), then Replay for each change. Any error ends the copy:
  // go on with a new Begin. Other errors than the named ones are the disk's.
  //
  // Starts a new copy. Secrets are replaced at once; the previous store stays until all bytes of
  // the new one have arrived.
  Status Begin(const v1::FollowedMessage::Begin& begin);
  // Appends the next bytes of the store file. kDataLoss: more bytes came than Begin announced.
  Status Append(std::string_view bytes);
  // True if all bytes of the store have arrived. Changes can then be replayed.
  bool complete() const { return database_.has_value(); }
  // Replays the next change, which is on disk when this returns OK. kDataLoss: a change is missing
  // before this one, or the copy is not complete.
  Status Replay(const v1::StoreChange& change);
  // Number of the last change that the copy contains.
  uint64_t last_change() const { return last_change_; }

  // Returns the store of one kind of blobs: users' data or copies of checkpoint shards. Valid as
  // long as this object. Each store is thread-safe.
  const BlobStore& blobs(v1::BlobFolder folder) const { return *blobs_[folder]; }

 private:
  StateCopy(std::string state_dir, StateDirLock lock)
      : state_dir_(std::move(state_dir)), lock_(std::move(lock)) {}
  Status Complete();

  std::string state_dir_;
  StateDirLock lock_;
  std::array<std::unique_ptr<BlobStore>, 2> blobs_;
  UniqueFd incoming_;
  uint64_t missing_bytes_ = 0;
  std::optional<sqlite::Database> database_;
  uint64_t last_change_ = 0;
};

}  // namespace longhaul::coordinator
