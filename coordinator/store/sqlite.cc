#include "coordinator/store/sqlite.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <map>
#include <string_view>

#include "base/disk_call.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace longhaul::coordinator::sqlite {
namespace {

Status FromSqlite(sqlite3* database, int code, std::string_view what) {
  const std::string text = fmt::format("{}: {}", what, sqlite3_errmsg(database));
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::FailedPreconditionError(text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

// The tables of changes are written by whoever applies a change, and by no change.
bool MayReplay(std::string_view table) {
  return !table.starts_with("sqlite_") && table != "changes" && table != "applied";
}

// Refuses what no recorded change does. A change comes from another machine, and SQL can also write
// files (ATTACH), end the transaction, or compute for ever (recursion, functions).
int OnReplayed(void*, int action, const char* name, const char*, const char*, const char*) {
  switch (action) {
    case SQLITE_INSERT:
    case SQLITE_UPDATE:
    case SQLITE_DELETE:
      return MayReplay(name) ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_READ:
    case SQLITE_SELECT:
      return SQLITE_OK;
    default:
      return SQLITE_DENY;
  }
}

// Holds statements that are prepared meanwhile against OnReplayed.
class ReplayedOnly {
 public:
  explicit ReplayedOnly(sqlite3* database) : database_(database) {
    sqlite3_set_authorizer(database_, &OnReplayed, nullptr);
  }
  ~ReplayedOnly() { sqlite3_set_authorizer(database_, nullptr, nullptr); }
  ReplayedOnly(const ReplayedOnly&) = delete;
  ReplayedOnly& operator=(const ReplayedOnly&) = delete;

 private:
  sqlite3* const database_;
};

}  // namespace

// Null: nothing is written down.
v1::StoreValue* Statement::Note(int position) {
  if (recording_->change == nullptr) return nullptr;
  while (noted_.values_size() < position) noted_.add_values();
  return noted_.mutable_values(position - 1);
}

void Statement::WriteDown() {
  if (recording_->change == nullptr || sqlite3_stmt_readonly(statement_.get()) != 0) return;
  v1::StoreStatement* const done = recording_->change->add_statements();
  *done = noted_;
  done->set_sql(sqlite3_sql(statement_.get()));
}

Statement& Statement::Bind(int position, std::string_view text) {
  if (v1::StoreValue* const value = Note(position)) value->set_text(text.data(), text.size());
  sqlite3_bind_text64(statement_.get(), position, text.data() == nullptr ? "" : text.data(),
                      text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::Bind(int position, Blob blob) {
  const std::string_view bytes = blob.bytes;
  if (v1::StoreValue* const value = Note(position)) value->set_blob(bytes.data(), bytes.size());
  sqlite3_bind_blob64(statement_.get(), position, bytes.data() == nullptr ? "" : bytes.data(),
                      bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::Bind(int position, int64_t value) {
  if (v1::StoreValue* const noted = Note(position)) noted->set_integer(value);
  sqlite3_bind_int64(statement_.get(), position, value);
  return *this;
}

Statement& Statement::Bind(int position, std::optional<Blob> blob) {
  if (blob) return Bind(position, *blob);
  if (v1::StoreValue* const value = Note(position)) value->clear_kind();
  sqlite3_bind_null(statement_.get(), position);
  return *this;
}

StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  Status status;
  if (code != SQLITE_DONE) {
    status = FromSqlite(sqlite3_db_handle(statement_.get()), code, "state store");
  } else {
    WriteDown();
  }
  noted_.Clear();
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  if (!status.ok()) return status;
  return false;
}

Status Statement::Run() {
  LH_ASSIGN_OR_RETURN(const bool row, Next());
  if (row) sqlite3_reset(statement_.get());
  return absl::OkStatus();
}

std::string_view Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

StatusOr<Database> Database::Open(const std::string& path, int flags) {
  if ((flags & SQLITE_OPEN_CREATE) != 0 && path != ":memory:") {
    // SQLite makes files that everybody may read. An empty file is a database to it.
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  }
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_EXRESCODE, nullptr);
  Database database;
  database.database_.reset(handle);
  if (code != SQLITE_OK) return FromSqlite(handle, code, fmt::format("cannot open {}", path));
  return database;
}

Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : FromSqlite(database_.get(), code, "state store");
}

StatusOr<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* handle = nullptr;
  const int code = sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  if (code != SQLITE_OK) return FromSqlite(database_.get(), code, "state store");
  Statement statement;
  statement.statement_.reset(handle);
  statement.recording_ = recording_;
  return statement;
}

Status Database::Transact(absl::FunctionRef<Status()> write) {
  const char* const file = sqlite3_db_filename(database_.get(), "main");
  {
    const DiskCall call("beginning a transaction", file, /*is_short=*/true);
    LH_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  }
  Status status = write();
  if (status.ok()) {
    const DiskCall call("committing a transaction", file, /*is_short=*/true);
    status = Execute("COMMIT");
  }
  if (status.ok()) return status;
  // SQLite has rolled back by itself after some errors; then there is nothing left to roll back.
  if (const Status rollback = Execute("ROLLBACK"); !rollback.ok()) {
    LogDebug("rollback: {}", Message(rollback));
  }
  return status;
}

Status Database::Replay(const v1::StoreChange& change) {
  return Transact([&] { return Play(change); });
}

Status Database::Play(const v1::StoreChange& change) {
  const Status status = [&]() -> Status {
    std::map<std::string_view, Statement> prepared;
    for (const v1::StoreStatement& done : change.statements()) {
      Statement& statement = prepared[done.sql()];
      if (statement.statement_ == nullptr) {
        const ReplayedOnly only(database_.get());
        LH_ASSIGN_OR_RETURN(statement, Prepare(done.sql()));
      }
      if (statement.statement_ == nullptr) return absl::InternalError("there is no statement");
      for (int i = 0; i < done.values_size(); ++i) {
        const v1::StoreValue& value = done.values(i);
        if (value.has_integer()) statement.Bind(i + 1, int64_t{value.integer()});
        if (value.has_text()) statement.Bind(i + 1, value.text());
        if (value.has_blob()) statement.Bind(i + 1, Blob{value.blob()});
      }
      LH_RETURN_IF_ERROR(statement.Run());
    }
    return absl::OkStatus();
  }();
  if (!absl::IsInternal(status)) return status;
  return DataLoss(
      "{}: expected a change that inserts, updates or deletes rows of the store's tables; check "
      "which coordinator sent it",
      Message(status));
}

StatusOr<int64_t> Database::QueryInt(std::string_view sql) {
  LH_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  LH_ASSIGN_OR_RETURN(const bool row, statement.Next());
  return row ? statement.Int(0) : 0;
}

StatusOr<std::string> Database::QueryText(std::string_view sql) {
  LH_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  LH_ASSIGN_OR_RETURN(const bool row, statement.Next());
  return row ? std::string(statement.Bytes(0)) : std::string();
}

Status Database::CopyTo(Database* target) {
  sqlite3* const to = target->database_.get();
  sqlite3_backup* const backup = sqlite3_backup_init(to, "main", database_.get(), "main");
  if (backup == nullptr) return FromSqlite(to, sqlite3_errcode(to), "cannot begin a backup");
  // In one go: a backup in pieces begins anew whenever somebody writes between two of them.
  const int code = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (code != SQLITE_DONE) return FromSqlite(to, code, "cannot copy the store");
  return finished == SQLITE_OK ? absl::OkStatus()
                               : FromSqlite(to, finished, "cannot end the copy of the store");
}

void Database::KeepLogOnClose(bool keep) {
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep ? 1 : 0, nullptr);
}

}  // namespace longhaul::coordinator::sqlite
