#include "coordinator/store/schema.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "absl/time/clock.h"
#include "base/file.h"
#include "coordinator/store/members.h"

namespace longhaul::coordinator {
namespace {

constexpr char kSchema[] = R"sql(
CREATE TABLE runs(
  id TEXT PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  step INTEGER NOT NULL,
  spec_yaml TEXT NOT NULL,
  link_secret BLOB NOT NULL,
  data_files BLOB NOT NULL,      -- DataFile messages, each after its length
  data BLOB,                     -- DataSet
  plan BLOB,                     -- Plan
  checkpoints BLOB NOT NULL,     -- CheckpointManifest messages, each after its length
  submitted_unix_ms INTEGER NOT NULL,
  started_unix_ms INTEGER NOT NULL,
  ended_unix_ms INTEGER NOT NULL,
  stop_asked INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,   -- in a row, without a new step
  best_step INTEGER NOT NULL DEFAULT 0,
  last_error TEXT NOT NULL DEFAULT '',   -- of a stage, which was the cause of the last attempt
  owner TEXT NOT NULL DEFAULT '',        -- the member that submitted it; empty: without TLS
  resize_asked INTEGER NOT NULL DEFAULT 0,
  replicas_wanted INTEGER NOT NULL DEFAULT 0,
  samples BLOB NOT NULL DEFAULT x'');    -- SampleRound messages, each after its length
CREATE TABLE events(
  sequence INTEGER PRIMARY KEY NOT NULL,
  unix_ms INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL);
CREATE INDEX events_by_run ON events(run_id, sequence);
CREATE TABLE steps(
  run_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  record BLOB NOT NULL,          -- StepRecord
  PRIMARY KEY(run_id, step)) WITHOUT ROWID;
CREATE TABLE worker_logs(
  sequence INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  run_id TEXT NOT NULL,
  worker_name TEXT NOT NULL,
  unix_ms INTEGER NOT NULL,
  level TEXT NOT NULL,
  text TEXT NOT NULL);
CREATE INDEX worker_logs_by_run ON worker_logs(run_id, sequence);
CREATE TABLE members(
  name TEXT PRIMARY KEY NOT NULL,
  role TEXT NOT NULL,
  worker_id TEXT NOT NULL,
  key_sha256 TEXT NOT NULL,              -- of the key that it joined with and keeps
  joined_unix_ms INTEGER NOT NULL,
  until_unix_ms INTEGER NOT NULL,        -- the end of the newest certificate
  revoked_unix_ms INTEGER NOT NULL);     -- 0: not revoked
CREATE TABLE join_tokens(
  secret_sha256 TEXT PRIMARY KEY NOT NULL,
  role TEXT NOT NULL,
  uses_left INTEGER NOT NULL,            -- negative: any number
  until_unix_ms INTEGER NOT NULL);
)sql";

// What version 7 has beside version 6.
constexpr char kSince7[] = R"sql(
CREATE TABLE former_members(             -- members that ended long ago
  name TEXT PRIMARY KEY NOT NULL,
  key_sha256 TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX former_members_by_key ON former_members(key_sha256);
CREATE TABLE audit(
  sequence INTEGER PRIMARY KEY NOT NULL,
  unix_ms INTEGER NOT NULL,
  member TEXT NOT NULL,
  role TEXT NOT NULL,
  address TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  outcome TEXT NOT NULL);
)sql";

// What version 8 has beside version 7.
constexpr char kSince8[] = R"sql(
CREATE TABLE changes(                    -- the newest transactions, for a coordinator that follows
  number INTEGER PRIMARY KEY NOT NULL,
  term INTEGER NOT NULL,
  chain INTEGER NOT NULL,
  unix_ms INTEGER NOT NULL,
  bytes BLOB NOT NULL);                  -- StoreChange
CREATE TABLE applied(                    -- the newest change that the other tables have
  id INTEGER PRIMARY KEY NOT NULL CHECK(id = 1),
  number INTEGER NOT NULL,
  term INTEGER NOT NULL,
  chain INTEGER NOT NULL);
CREATE TABLE terms(                      -- who led when
  term INTEGER PRIMARY KEY NOT NULL,
  tenure BLOB NOT NULL,
  seat TEXT NOT NULL,
  address TEXT NOT NULL,
  unix_ms INTEGER NOT NULL);
CREATE TABLE voting(                     -- the witness that counts
  id INTEGER PRIMARY KEY NOT NULL CHECK(id = 1),
  witness TEXT NOT NULL,                 -- its id; empty: none
  name TEXT NOT NULL);
CREATE TABLE requests(                   -- calls that were answered, by the id that their caller gave
  owner TEXT NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  asked_sha256 TEXT NOT NULL,            -- of the request without its id
  reply BLOB NOT NULL,
  unix_ms INTEGER NOT NULL,
  PRIMARY KEY(owner, id)) WITHOUT ROWID;
)sql";

// What version 9 has beside version 8.
constexpr char kSince9[] = R"sql(
ALTER TABLE join_tokens ADD COLUMN
  most_members INTEGER NOT NULL DEFAULT 0; -- of those who joined with it, at a time; 0: no limit
ALTER TABLE members ADD COLUMN
  token_sha256 TEXT NOT NULL DEFAULT '';   -- of the token it joined with, if that has such a limit
)sql";

Status CheckIdentity(const std::string& path, uint32_t application_id, uint32_t version) {
  if (application_id != kStoreApplicationId) {
    return FailedPrecondition(
        "{} is not a state store of longhaul (application id {:#x}, expected {:#x}); "
        "it was left as "
        "it is. Give another --state-dir",
        path, application_id, kStoreApplicationId);
  }
  if (version < kOldestStoreSchemaVersion || version > kStoreSchemaVersion) {
    return FailedPrecondition(
        "state store {} has schema version {}, this coordinator knows versions {} to {}; it "
        "was left as it is. Run the coordinator that wrote it, or give another "
        "--state-dir",
        path, version, kOldestStoreSchemaVersion, kStoreSchemaVersion);
  }
  return absl::OkStatus();
}

// Looks at the file's header without SQLite, which may change what it opens.
Status CheckHeader(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string header(100, '\0');
  if (!file.is_open()) {
    return FailedPrecondition("state store {} cannot be read", path);
  }
  if (!file.read(header.data(), static_cast<std::streamsize>(header.size()))) {
    return DamagedStore(path, fmt::format("it has {} bytes, fewer than a header", file.gcount()));
  }
  const auto word = [&](size_t offset) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(header[offset + i]);
    return value;
  };
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  if (!header.starts_with(kMagic)) return DamagedStore(path, "it does not begin like a database");
  return CheckIdentity(path, word(68), word(60));
}

// Under a temporary name until it is whole, so that a half-made store never has the real one.
Status Create(const std::string& path) {
  const std::string log = path + "-wal", temporary = path + ".new";
  std::error_code error;
  if (std::filesystem::file_size(log, error) > 0 && !error) {
    return DamagedStore(path, fmt::format("it is missing, but its log {} is there", log));
  }
  for (const char* suffix : {"-wal", "-shm", ".new", ".new-wal", ".new-shm"}) {
    std::filesystem::remove(path + suffix, error);
  }
  {
    LH_ASSIGN_OR_RETURN(
        sqlite::Database database,
        sqlite::Database::Open(temporary, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    LH_RETURN_IF_ERROR(database.Execute(
        fmt::format("PRAGMA synchronous=FULL; BEGIN; PRAGMA application_id={}; PRAGMA "
                    "user_version={}; {} {} {} {} COMMIT; PRAGMA journal_mode=WAL;",
                    kStoreApplicationId, kStoreSchemaVersion, kSchema, kSince7, kSince8, kSince9)));
  }
  // It will hold the secrets of runs; SQLite gives its log the same mode.
  if (::chmod(temporary.c_str(), 0600) != 0) {
    return FromErrno(fmt::format("cannot set the mode of {}", temporary), errno);
  }
  LH_RETURN_IF_ERROR(SyncPath(temporary));
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return FromErrno(fmt::format("cannot rename {} to {}", temporary, path), errno);
  }
  return SyncPath(std::filesystem::path(path).parent_path().string());
}

// Brings a store of `version` to the present one. Join tokens of version 6 might last for ever:
// these now end as late as any may.
Status Migrate(sqlite::Database& database, const std::string& path, int64_t version) {
  const int64_t until = absl::ToUnixMillis(absl::Now() + kLongestTokenLife);
  const std::string to_7 =
      version >= 7
          ? ""
          : fmt::format("{} UPDATE join_tokens SET until_unix_ms={} WHERE until_unix_ms=0;",
                        kSince7, until);
  const std::string to_8 = version >= 8 ? "" : kSince8;
  const Status status = database.Transact([&] {
    return database.Execute(
        fmt::format("{} {} {} PRAGMA user_version={}", to_7, to_8, kSince9, kStoreSchemaVersion));
  });
  // A table is not there, or one is that should not be.
  return absl::IsInternal(status) ? DamagedStore(path, Message(status)) : status;
}

StatusOr<sqlite::Database> OpenExisting(const std::string& path) {
  LH_RETURN_IF_ERROR(CheckHeader(path));
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(path, SQLITE_OPEN_READWRITE));
  database.KeepLogOnClose(true);
  const StatusOr<std::string> check = database.QueryText("PRAGMA quick_check(1)");
  if (!check.ok()) {
    if (check.status().code() != absl::StatusCode::kDataLoss) return check.status();
    return DamagedStore(path, Message(check.status()));
  }
  if (*check != "ok") return DamagedStore(path, *check);
  // Again, now with what only the log may hold so far.
  LH_ASSIGN_OR_RETURN(const int64_t application_id, database.QueryInt("PRAGMA application_id"));
  LH_ASSIGN_OR_RETURN(const int64_t version, database.QueryInt("PRAGMA user_version"));
  LH_RETURN_IF_ERROR(
      CheckIdentity(path, static_cast<uint32_t>(application_id), static_cast<uint32_t>(version)));
  if (version < int64_t{kStoreSchemaVersion}) {
    LH_RETURN_IF_ERROR(Migrate(database, path, version));
  }
  database.KeepLogOnClose(false);
  return database;
}

}  // namespace

Status DamagedStore(const std::string& path, std::string_view detail) {
  return DataLoss(
      "state store {} is damaged ({}); it was left as it is. Put a copy of it back, or "
      "move it away to begin with an empty one",
      path, detail);
}

StatusOr<sqlite::Database> OpenOrCreateStore(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) LH_RETURN_IF_ERROR(Create(path));
  LH_ASSIGN_OR_RETURN(sqlite::Database database, OpenExisting(path));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000"));
  return database;
}

}  // namespace longhaul::coordinator
