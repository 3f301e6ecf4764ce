#include "coordinator/standby/state_copy.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/store/schema.h"

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
  std::error_code error;
  if (!std::filesystem::exists(StoreIn(state_dir), error)) return copy;
  StatusOr<sqlite::Database> database = OpenOrCreateStore(StoreIn(state_dir));
  const Status opened = database.ok() ? copy.OpenDatabase(*std::move(database)) : database.status();
  if (!opened.ok()) {
    LogWarning("the leader's whole store is copied: {}", Message(opened));
    copy.database_.reset();
  }
  return copy;
}

std::optional<Standing> StateCopy::standing() const {
  return complete() ? std::optional(standing_) : std::nullopt;
}

void StateCopy::Distrust() {
  database_.reset();
  standing_ = {};
}

Status StateCopy::OpenDatabase(sqlite::Database database) {
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
  LH_ASSIGN_OR_RETURN(standing_, ReadStanding(database));
  LH_RETURN_IF_ERROR(trimmer_.Count(database));
  database_.emplace(std::move(database));
  return absl::OkStatus();
}

Status StateCopy::Begin(const v1::FollowedMessage::Begin& begin) {
  LH_RETURN_IF_ERROR(WriteFileAtomic(state_dir_ + "/authority.pem", begin.authority(), 0600));
  if (!begin.relay_secret().empty()) {
    LH_RETURN_IF_ERROR(WriteFileAtomic(state_dir_ + "/relay-secret", begin.relay_secret(), 0600));
  }
  if (begin.has_resume_after()) return Resume(begin.resume_after());
  Distrust();
  const std::string path = StoreIn(state_dir_) + ".new";
  incoming_.Reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!incoming_) return FromErrno(fmt::format("cannot create {}", path), errno);
  missing_bytes_ = begin.store_bytes();
  return absl::OkStatus();
}

Status StateCopy::Resume(uint64_t after) {
  const Standing standing = complete() ? standing_ : Standing{};
  const bool has =
      complete() && after >= standing.applied.number && after <= standing.logged().number;
  if (has) return absl::OkStatus();
  const uint64_t logged = standing.logged().number;
  Distrust();
  return DataLoss("the leader goes on after change {}, and this copy has changes up to {}", after,
                  logged);
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
  const std::lock_guard replacing(*replacing_);
  const std::string path = StoreIn(state_dir_), fresh = path + ".new";
  // SQLite would play the logs of the store before into this one.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) ::unlink((path + suffix).c_str());
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    return FromErrno(fmt::format("cannot rename {} to {}", fresh, path), errno);
  }
  LH_RETURN_IF_ERROR(SyncPath(state_dir_));
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(path, SQLITE_OPEN_READWRITE));
  return OpenDatabase(std::move(database));
}

// ---- Changes -----------------------------------------------------------------------

Status StateCopy::Log(const v1::StoreChange& change, uint64_t committed) {
  if (!complete()) return absl::DataLossError("a change of the store came before the store");
  const NamedChange named{.change = change, .bytes = StoredBytes(change)};
  Standing next = standing_;
  switch (FitOf(standing_, named)) {
    case Fit::kKnown:
      return Apply(committed);
    case Fit::kGap:
      return DataLoss("change {} of the store came behind change {}", change.number(),
                      standing_.logged().number);
    case Fit::kDiffers: {
      const Status differs = DataLoss(
          "change {} of term {} does not follow change {} of term {}: this copy is not "
          "that of the leader's store, so a whole copy is needed",
          change.number(), change.term(), standing_.logged().number, standing_.logged().term);
      Distrust();
      return differs;
    }
    case Fit::kReplacesTail:
      while (next.logged().number >= change.number()) next.tail.pop_back();
      break;
    case Fit::kNext:
      break;
  }
  next.tail.push_back(named.history());
  const auto log = [&]() -> Status {
    LH_RETURN_IF_ERROR(CutChanges(*database_, change.number() - 1));
    LH_RETURN_IF_ERROR(LogChange(*database_, named));
    LH_RETURN_IF_ERROR(ApplyUpTo(committed, &next));
    return trimmer_.Added(*database_, named.bytes.size(), next.applied.number);
  };
  LH_RETURN_IF_ERROR(database_->Transact(log));
  standing_ = std::move(next);
  return absl::OkStatus();
}

// Within a transaction.
Status StateCopy::ApplyUpTo(uint64_t committed, Standing* standing) {
  while (!standing->tail.empty() && standing->tail.front().number <= committed) {
    LH_RETURN_IF_ERROR(ApplyLogged(*database_, standing->tail.front().number));
    standing->applied = standing->tail.front();
    standing->tail.erase(standing->tail.begin());
  }
  return absl::OkStatus();
}

Status StateCopy::Apply(uint64_t committed) {
  if (!complete()) return absl::OkStatus();
  if (standing_.tail.empty() || standing_.tail.front().number > committed) return absl::OkStatus();
  Standing next = standing_;
  LH_RETURN_IF_ERROR(database_->Transact([&] { return ApplyUpTo(committed, &next); }));
  standing_ = std::move(next);
  return absl::OkStatus();
}

Status StateCopy::CutTail(uint64_t number) {
  if (!complete() || standing_.logged().number <= number) return absl::OkStatus();
  if (number < standing_.applied.number) {
    return Internal("change {} is applied and cannot be forgotten", standing_.applied.number);
  }
  LH_RETURN_IF_ERROR(database_->Transact([&] { return CutChanges(*database_, number); }));
  while (standing_.logged().number > number) standing_.tail.pop_back();
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
