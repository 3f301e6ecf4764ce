#include "coordinator/store/sqlite.h"

#include <fmt/core.h>

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

}  // namespace

Statement& Statement::Bind(int position, std::string_view text) {
  sqlite3_bind_text64(statement_.get(), position, text.data() == nullptr ? "" : text.data(),
                      text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::BindBlob(int position, std::string_view bytes) {
  sqlite3_bind_blob64(statement_.get(), position, bytes.data() == nullptr ? "" : bytes.data(),
                      bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::Bind(int position, int64_t value) {
  sqlite3_bind_int64(statement_.get(), position, value);
  return *this;
}

Statement& Statement::BindNull(int position) {
  sqlite3_bind_null(statement_.get(), position);
  return *this;
}

StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  Status status;
  if (code != SQLITE_DONE) {
    status = FromSqlite(sqlite3_db_handle(statement_.get()), code, "state store");
  }
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
  return statement;
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
