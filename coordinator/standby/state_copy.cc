#include "coordinator/standby/state_copy.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "coordinator/standby/leadership.h"

namespace longhaul::coordinator {
namespace {

std::string StoreIn(const std::string& state_dir) {
  return state_dir + "/store.db";
}

// Where a coordinator of its own was, whose runs nobody else has.
Status CheckReplaceable(const std::string& state_dir) {
  LH_ASSIGN_OR_RETURN(const LeadershipRecord record, ReadLeadership(state_dir));
  std::error_code error;
  if (record.role != LeaderRole::kCoordinator ||
      !std::filesystem::exists(StoreIn(state_dir), error)) {
    return absl::OkStatus();
  }
  LH_ASSIGN_OR_RETURN(sqlite::Database store,
                      sqlite::Database::Open(StoreIn(state_dir), SQLITE_OPEN_READONLY));
  LH_ASSIGN_OR_RETURN(const int64_t runs, store.QueryInt("SELECT count(*) FROM runs"));
  if (runs == 0) return absl::OkStatus();
  return FailedPrecondition(
      "{} is the state directory of a coordinator that was not taken over from, and "
      "has {} runs, which following another would replace; give another --state-dir",
      state_dir, runs);
}

}  // namespace

StatusOr<StateCopy> StateCopy::Open(const std::string& state_dir, bool taken_over) {
  LH_ASSIGN_OR_RETURN(StateDirLock lock, StateDirLock::Acquire(state_dir));
  if (!taken_over) LH_RETURN_IF_ERROR(CheckReplaceable(state_dir));
  StateCopy copy(state_dir, std::move(lock));
  LH_ASSIGN_OR_RETURN(copy.blobs_[v1::BLOB_FOLDER_DATA], BlobStore::Open(state_dir + "/blobs"));
  LH_ASSIGN_OR_RETURN(copy.blobs_[v1::BLOB_FOLDER_COPIES],
                      BlobStore::Open(state_dir + "/shard-copies"));
  return copy;
}

Status StateCopy::Begin(const v1::FollowedMessage::Begin& begin) {
  database_.reset();
  LH_RETURN_IF_ERROR(WriteFileAtomic(state_dir_ + "/authority.pem", begin.authority(), 0600));
  if (!begin.relay_secret().empty()) {
    LH_RETURN_IF_ERROR(WriteFileAtomic(state_dir_ + "/relay-secret", begin.relay_secret(), 0600));
  }
  const std::string path = StoreIn(state_dir_) + ".new";
  incoming_.Reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!incoming_) return FromErrno(fmt::format("cannot create {}", path), errno);
  missing_bytes_ = begin.store_bytes();
  last_change_ = begin.change();
  return absl::OkStatus();
}

Status StateCopy::Append(std::string_view bytes) {
  if (!incoming_ || bytes.size() > missing_bytes_) {
    return absl::DataLossError("more bytes of the store came than were announced");
  }
  missing_bytes_ -= bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(incoming_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno("cannot write the copy of the store", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return missing_bytes_ == 0 ? Complete() : absl::OkStatus();
}

Status StateCopy::Complete() {
  if (::fsync(incoming_.get()) != 0) return FromErrno("cannot sync the copy of the store", errno);
  incoming_.Reset();
  const std::string path = StoreIn(state_dir_), fresh = path + ".new";
  // SQLite would play the logs of the store before into this one.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) ::unlink((path + suffix).c_str());
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    return FromErrno(fmt::format("cannot rename {} to {}", fresh, path), errno);
  }
  LH_RETURN_IF_ERROR(SyncPath(state_dir_));
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(path, SQLITE_OPEN_READWRITE));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
  database_.emplace(std::move(database));
  return absl::OkStatus();
}

Status StateCopy::Replay(const v1::StoreChange& change) {
  if (!database_ || change.number() != last_change_ + 1) {
    return DataLoss("change {} of the store came behind change {}", change.number(), last_change_);
  }
  LH_RETURN_IF_ERROR(database_->Replay(change));
  last_change_ = change.number();
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
