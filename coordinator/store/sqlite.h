// RAII wrappers of SQLite that return Status. Not thread-safe: the store holds a lock.
//
// Errors: kDataLoss (damaged, or no database), kResourceExhausted (disk full), kFailedPrecondition
// (no access), kUnavailable (locked, or an I/O error), kInternal (others, such as wrong SQL).
#pragma once

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator::sqlite {

// Where the changes by statements are recorded. Null: they are not recorded.
struct Recording {
  v1::StoreChange* change = nullptr;
};

// A parameter that SQLite stores as bytes.
struct Blob {
  std::string_view bytes;
};

// A compiled statement; a default one must be assigned before use. As in SQLite, Bind counts
// positions from 1, and columns count from 0. Must not outlive its Database. Bind copies its value.
// Int, Bytes and IsNull read the present row, after Next has returned true.
class Statement {
 public:
  Statement() = default;
  // Binds all parameters, in their order.
  template <class... Values>
  Statement& Args(const Values&... values) {
    int position = 0;
    (Bind(++position, values), ...);
    return *this;
  }
  Statement& Bind(int position, std::string_view text);
  Statement& Bind(int position, Blob blob);
  Statement& Bind(int position, int64_t value);
  template <std::integral Number>
  Statement& Bind(int position, Number value) {
    return Bind(position, static_cast<int64_t>(value));
  }
  // nullopt binds NULL.
  Statement& Bind(int position, std::optional<Blob> blob);

  // Goes to the next row. True: there is one. False: there are no more; the statement is reset and
  // its bindings are cleared.
  StatusOr<bool> Next();
  // Runs a statement; a row that it may give is ignored.
  Status Run();

  int64_t Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  // A text or blob; empty for NULL. Valid until the next call of Next.
  std::string_view Bytes(int column) const;
  bool IsNull(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  v1::StoreValue* Note(int position);
  void WriteDown();

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::shared_ptr<const Recording> recording_;
  v1::StoreStatement noted_;  // its parameters, while a change is recorded
};

class Database {
 public:
  // `flags`: those of sqlite3_open_v2. A file that this makes is private (mode 0600) from its first
  // byte.
  static StatusOr<Database> Open(const std::string& path, int flags);
  // Runs all statements in `sql`, which may be several, and ignores their rows.
  Status Execute(const std::string& sql);
  StatusOr<Statement> Prepare(std::string_view sql);
  // Runs `write` in one transaction. If it fails, the database does not change.
  Status Transact(absl::FunctionRef<Status()> write);
  // Records changes by statements of this database, but not by Execute, in `change` until the next
  // call. Null: stops recording. `change` must live until then.
  void WriteDownIn(v1::StoreChange* change) { recording_->change = change; }
  // Applies a change that was recorded on another database. Replay does it in a transaction of its
  // own, Play within the caller's: if Play fails, the caller rolls back.
  Status Replay(const v1::StoreChange& change);
  Status Play(const v1::StoreChange& change);
  // These return the first column of a query's first row; 0 or "" if there is no row.
  StatusOr<int64_t> QueryInt(std::string_view sql);
  StatusOr<std::string> QueryText(std::string_view sql);
  // Copies the whole database, as of one moment, over the contents of `target`. Other connections
  // may read and write meanwhile.
  Status CopyTo(Database* target);
  // `keep`: closing leaves the write-ahead log as it is. Else closing merges the log and removes
  // it.
  void KeepLogOnClose(bool keep);

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
  };
  std::unique_ptr<sqlite3, Close> database_;
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace longhaul::coordinator::sqlite
