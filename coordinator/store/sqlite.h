// SQLite behind RAII owners and Status. Internal to coordinator/store. Not thread-safe: the store
// holds a lock.
#ifndef LONGHAUL_COORDINATOR_STORE_SQLITE_H_
#define LONGHAUL_COORDINATOR_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator::sqlite {

// Where the statements of a database write down what they change; null: nowhere.
struct Recording {
  v1::StoreChange* change = nullptr;
};

// A compiled statement. Positions of Bind count from 1, of columns from 0, as SQLite has it. Must
// not outlive its Database.
class Statement {
 public:
  Statement() = default;
  Statement& Bind(int position, std::string_view text);
  Statement& BindBlob(int position, std::string_view bytes);
  Statement& Bind(int position, int64_t value);
  Statement& Bind(int position, uint64_t value) { return Bind(position, int64_t(value)); }
  Statement& BindNull(int position);

  // True: there is a row. False: done; the statement is reset and its bindings are cleared.
  StatusOr<bool> Next();
  // Runs a statement that gives no rows.
  Status Run();

  int64_t Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  // Valid until the next call of Next.
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
  v1::StoreStatement noted_;  // its parameters, while a change is written down
};

class Database {
 public:
  // `flags` of sqlite3_open_v2.
  static StatusOr<Database> Open(const std::string& path, int flags);
  Status Execute(const std::string& sql);
  StatusOr<Statement> Prepare(std::string_view sql);
  // One transaction: all that the statements in `write` change, or nothing where it or the end
  // fails.
  Status Transact(absl::FunctionRef<Status()> write);
  // What statements change until the next call is added to `change`, too. Null: no more.
  void WriteDownIn(v1::StoreChange* change) { recording_->change = change; }
  // Does in one transaction what was written down of another database.
  Status Replay(const v1::StoreChange& change);
  // The one integer of a one-row query.
  StatusOr<int64_t> QueryInt(std::string_view sql);
  StatusOr<std::string> QueryText(std::string_view sql);
  // All of it, as of one moment, over what `target` has; others may read and write meanwhile.
  Status CopyTo(Database* target);
  // Whether closing leaves the write-ahead log as it is (else it is merged and removed).
  void KeepLogOnClose(bool keep);

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
  };
  std::unique_ptr<sqlite3, Close> database_;
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace longhaul::coordinator::sqlite

#endif  // LONGHAUL_COORDINATOR_STORE_SQLITE_H_
