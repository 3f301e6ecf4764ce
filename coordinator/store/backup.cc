#include "coordinator/store/backup.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/private_files.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/state_dir_lock.h"

namespace longhaul::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStore = "/store.db";
// Where the coordinator has one: its authority's key with TLS, its relay's with a relay.
constexpr std::array<std::string_view, 2> kSecrets = {"/authority.pem", "/relay-secret"};
// SQLite would play these into whatever store lies beside them.
constexpr std::array<std::string_view, 3> kStoreLogs = {"-wal", "-shm", "-journal"};
constexpr std::array<std::string_view, 2> kBlobFolders = {"/blobs", "/shard-copies"};
constexpr uint64_t kMostSecretBytes = 1 << 20;
// The first version of the store with a log of changes.
constexpr int64_t kSchemaWithChanges = 8;

std::string In(const std::string& folder, std::string_view name) {
  return folder + std::string(name);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The copy has neither the log of changes, which is for followers of this store alone, nor the
// witness, which votes for its seats and not for those of a copy. What a follower has logged and
// not applied may not have happened, and is not in the copy.
StatusOr<uint64_t> CopyStore(const std::string& from, const std::string& to) {
  LH_ASSIGN_OR_RETURN(StoreCopy copy, StoreCopy::Begin(from));
  LH_ASSIGN_OR_RETURN(const uint64_t runs, copy.WriteTo(to));
  LH_ASSIGN_OR_RETURN(sqlite::Database written, sqlite::Database::Open(to, SQLITE_OPEN_READWRITE));
  LH_ASSIGN_OR_RETURN(const int64_t version, written.QueryInt("PRAGMA user_version"));
  if (version < kSchemaWithChanges) return runs;
  LH_RETURN_IF_ERROR(written.Execute("DELETE FROM changes; DELETE FROM voting; VACUUM"));
  return runs;
}

Status Publish(const std::string& temporary, const std::string& path) {
  LH_RETURN_IF_ERROR(SyncPath(temporary));
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) return FromErrno(fmt::format("cannot rename {}", temporary), error.value());
  return absl::OkStatus();
}

// The copy has another name until it is whole, so one that breaks off is not taken for it.
Status CopyFile(const std::string& from, const std::string& to) {
  const std::string temporary = to + ".new";
  std::error_code error;
  fs::copy_file(from, temporary, fs::copy_options::overwrite_existing, error);
  if (error) return FromErrno(fmt::format("cannot copy {} to {}", from, to), error.value());
  return Publish(temporary, to);
}

StatusOr<std::vector<fs::path>> BlobsIn(const std::string& folder) {
  std::vector<fs::path> blobs;
  if (!Exists(folder)) return blobs;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (IsSha256Hex(it->path().filename().string())) blobs.push_back(it->path());
  }
  if (error) return FromErrno(fmt::format("cannot list {}", folder), error.value());
  return blobs;
}

Status CopyBlobs(const std::string& from, const std::string& to, BackedUp* done) {
  for (const std::string_view name : kBlobFolders) {
    LH_ASSIGN_OR_RETURN(const std::vector<fs::path> blobs, BlobsIn(In(from, name)));
    if (blobs.empty()) continue;
    LH_RETURN_IF_ERROR(MakeDirectories(In(to, name)));
    for (const fs::path& blob : blobs) {
      const std::string target = In(to, name) + "/" + blob.filename().string();
      if (Exists(target)) continue;  // its name is its hash
      const Status status = CopyFile(blob.string(), target);
      if (!status.ok() && !Exists(blob.string())) continue;  // it was deleted meanwhile
      LH_RETURN_IF_ERROR(status);
      std::error_code error;
      ++done->blobs;
      done->blob_bytes += fs::file_size(target, error);
    }
  }
  return absl::OkStatus();
}

Status CheckBlobs(const std::string& folder) {
  for (const std::string_view name : kBlobFolders) {
    LH_ASSIGN_OR_RETURN(const std::vector<fs::path> blobs, BlobsIn(In(folder, name)));
    for (const fs::path& blob : blobs) {
      LH_ASSIGN_OR_RETURN(const std::string actual, Sha256HexOfFile(blob.string()));
      if (actual == blob.filename().string()) continue;
      return DataLoss(
          "{} is damaged: its contents have the hash {}; delete it, and what needs it is told so",
          blob.string(), actual);
    }
  }
  return absl::OkStatus();
}

Status CopySecrets(const std::string& from, const std::string& to) {
  for (const std::string_view name : kSecrets) {
    if (!Exists(In(from, name))) continue;
    LH_ASSIGN_OR_RETURN(const std::string secret, ReadFile(In(from, name), kMostSecretBytes));
    LH_RETURN_IF_ERROR(WriteFileAtomic(In(to, name), secret, 0600));
  }
  return absl::OkStatus();
}

// Before a restore: what a coordinator leaves in its state directory.
Status CheckUnused(const std::string& state_dir) {
  std::vector<std::string> names = {std::string(kStore)};
  for (const std::string_view log : kStoreLogs) names.push_back(In(names.front(), log));
  names.insert(names.end(), kSecrets.begin(), kSecrets.end());
  for (const std::string& name : names) {
    if (!Exists(state_dir + name)) continue;
    return FailedPrecondition(
        "{} is there already; restore into a folder that no coordinator has used",
        state_dir + name);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<StoreCopy> StoreCopy::Begin(const std::string& store) {
  if (!Exists(store)) return NotFound("there is no store {}", store);
  LH_ASSIGN_OR_RETURN(sqlite::Database source,
                      sqlite::Database::Open(store, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW));
  // A transaction begins with its first read.
  LH_RETURN_IF_ERROR(source.Execute("BEGIN"));
  LH_RETURN_IF_ERROR(source.QueryInt("SELECT count(*) FROM sqlite_schema").status());
  return StoreCopy(store, std::move(source));
}

StatusOr<uint64_t> StoreCopy::WriteTo(const std::string& path) {
  LH_ASSIGN_OR_RETURN(sqlite::Database copy,
                      sqlite::Database::Open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  LH_RETURN_IF_ERROR(source_.CopyTo(&copy));
  // The copy is one file: with a write-ahead log it would need another one beside it.
  LH_RETURN_IF_ERROR(copy.Execute("PRAGMA journal_mode=DELETE"));
  LH_ASSIGN_OR_RETURN(const std::string problem, copy.QueryText("PRAGMA integrity_check"));
  if (problem != "ok") return DamagedStore(store_, problem);
  LH_ASSIGN_OR_RETURN(const int64_t application, copy.QueryInt("PRAGMA application_id"));
  if (application != int64_t{kStoreApplicationId}) {
    return DamagedStore(store_, "it is not a coordinator's");
  }
  LH_ASSIGN_OR_RETURN(const int64_t runs, copy.QueryInt("SELECT count(*) FROM runs"));
  return static_cast<uint64_t>(runs);
}

StatusOr<BackedUp> BackUp(const std::string& state_dir, const std::string& folder,
                          bool with_blobs) {
  if (!Exists(In(state_dir, kStore))) {
    return NotFound("{} has no store of a coordinator", state_dir);
  }
  if (StateDirLock::IsIn(folder)) {
    return FailedPrecondition(
        "{} is a state directory of a coordinator, and a backup would replace its "
        "store; give another folder",
        folder);
  }
  LH_RETURN_IF_ERROR(MakePrivateDirectories(folder));
  BackedUp done;
  const std::string store = In(folder, kStore), temporary = store + ".new";
  std::remove(temporary.c_str());  // of a backup that was broken off
  LH_ASSIGN_OR_RETURN(done.runs, CopyStore(In(state_dir, kStore), temporary));
  LH_RETURN_IF_ERROR(CopySecrets(state_dir, folder));
  // Behind the store: what its runs name is there, unless garbage was collected since.
  if (with_blobs) LH_RETURN_IF_ERROR(CopyBlobs(state_dir, folder, &done));
  LH_RETURN_IF_ERROR(Publish(temporary, store));
  LH_RETURN_IF_ERROR(SyncPath(folder));
  return done;
}

StatusOr<BackedUp> Restore(const std::string& folder, const std::string& state_dir) {
  // First without the lock: its file would make a state directory of a backup that was named here.
  LH_RETURN_IF_ERROR(CheckUnused(state_dir));
  LH_ASSIGN_OR_RETURN(const StateDirLock lock, StateDirLock::Acquire(state_dir));
  // Again: a coordinator may have begun and ended there meanwhile.
  LH_RETURN_IF_ERROR(CheckUnused(state_dir));
  LH_RETURN_IF_ERROR(CheckBlobs(folder));
  BackedUp done;
  const std::string store = In(state_dir, kStore), temporary = store + ".new";
  std::remove(temporary.c_str());
  StatusOr<uint64_t> runs = CopyStore(In(folder, kStore), temporary);
  if (!runs.ok()) {
    std::remove(temporary.c_str());
    return runs.status();
  }
  done.runs = *runs;
  LH_RETURN_IF_ERROR(CopyBlobs(folder, state_dir, &done));
  LH_RETURN_IF_ERROR(CopySecrets(folder, state_dir));
  // Last: with a store the folder is a coordinator's.
  LH_RETURN_IF_ERROR(Publish(temporary, store));
  LH_RETURN_IF_ERROR(SyncPath(state_dir));
  return done;
}

}  // namespace longhaul::coordinator
