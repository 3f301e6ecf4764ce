// A standby's state directory while it follows: the copy of another coordinator's store, secrets
// and blobs. One thread at a time, but for blobs().
#ifndef LONGHAUL_COORDINATOR_STANDBY_STATE_COPY_H_
#define LONGHAUL_COORDINATOR_STANDBY_STATE_COPY_H_

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
  // Locks the directory, and makes it where it is missing. kFailedPrecondition for one with a
  // coordinator's own runs, which following would replace, unless another one has `taken_over`
  // from it.
  static StatusOr<StateCopy> Open(const std::string& state_dir, bool taken_over);

  // The copy begins anew. Until all of its bytes have come, the store of before stays.
  Status Begin(const v1::FollowedMessage::Begin& begin);
  // The next bytes of the store. kDataLoss: more came than were announced.
  Status Append(std::string_view bytes);
  // Whether all have come: then changes can be replayed.
  bool complete() const { return database_.has_value(); }
  // The next change, and on disk when this returns. kDataLoss: it is not the next.
  Status Replay(const v1::StoreChange& change);
  uint64_t last_change() const { return last_change_; }

  // Thread-safe, each of them.
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

#endif  // LONGHAUL_COORDINATOR_STANDBY_STATE_COPY_H_
