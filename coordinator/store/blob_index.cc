#include "coordinator/store/blob_index.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "base/log.h"

namespace longhaul::coordinator {
namespace {

// Numbers of lists are never used again: a name that is left of a list that is gone must not count
// for a newer list.
constexpr char kIndexSchema[] = R"sql(
CREATE TABLE IF NOT EXISTS lists(
  number INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  sha256 TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS names(
  name BLOB NOT NULL,
  list INTEGER NOT NULL,
  PRIMARY KEY(name, list)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sent(
  member TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY(member, sha256)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sent_by_blob ON sent(sha256);
)sql";
// How many names of lists that are gone are deleted in one transaction.
constexpr int kTidyRows = 10'000;

// A blob's name is its hash; the name of a file is a hash of its address, which no blob has.
std::string NameOfObject(std::string_view address) {
  return absl::HexStringToBytes(Sha256Hex(fmt::format("file at {}", address)));
}

}  // namespace

StatusOr<std::unique_ptr<BlobIndex>> BlobIndex::Open(const std::string& folder) {
  const std::string path = folder + "/blob-index.db";
  StatusOr<std::unique_ptr<BlobIndex>> index = OpenAt(path);
  if (index.ok() || absl::IsResourceExhausted(index.status())) return index;
  LogWarning("{} is made anew: {}", path, Message(index.status()));
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
  return OpenAt(path);
}

StatusOr<std::unique_ptr<BlobIndex>> BlobIndex::OpenAt(const std::string& path) {
  std::unique_ptr<BlobIndex> index(new BlobIndex);
  LH_RETURN_IF_ERROR(Prepare(path, &index->writer_));
  LH_RETURN_IF_ERROR(Prepare(path, &index->reader_));
  return index;
}

Status BlobIndex::Prepare(const std::string& path, Connection* connection) {
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  if (::chmod(path.c_str(), 0600) != 0) {
    return FromErrno(fmt::format("cannot set the mode of {}", path), errno);
  }
  // All of it can be made again, so nothing waits for the disk.
  LH_RETURN_IF_ERROR(database.Execute(
      "PRAGMA busy_timeout=5000; PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"));
  LH_RETURN_IF_ERROR(database.Execute(kIndexSchema));
  LH_ASSIGN_OR_RETURN(connection->number_of,
                      database.Prepare("SELECT number FROM lists WHERE sha256=?1"));
  LH_ASSIGN_OR_RETURN(connection->lists_of_name,
                      database.Prepare("SELECT list FROM names WHERE name=?1"));
  LH_ASSIGN_OR_RETURN(connection->bytes_of,
                      database.Prepare("SELECT coalesce(sum(bytes), 0) FROM sent WHERE member=?1"));
  LH_ASSIGN_OR_RETURN(connection->has_sent,
                      database.Prepare("SELECT 1 FROM sent WHERE member=?1 AND sha256=?2"));
  connection->database = std::move(database);
  return absl::OkStatus();
}

StatusOr<int64_t> BlobIndex::NumberOf(std::string_view list) const {
  const std::lock_guard lock(reader_.mutex);
  LH_ASSIGN_OR_RETURN(const bool known, reader_.number_of.Args(list).Next());
  if (!known) return 0;
  const int64_t number = reader_.number_of.Int(0);
  LH_RETURN_IF_ERROR(reader_.number_of.Next().status());  // at its end, it is reset
  return number;
}

StatusOr<int64_t> BlobIndex::AddList(std::string_view list, const ListNames& names) {
  // In the order of the table, which is quickest.
  std::vector<std::string_view> sorted;
  sorted.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) sorted.push_back(names.name(i));
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());

  const std::lock_guard lock(writer_.mutex);
  sqlite::Database& database = writer_.database;
  int64_t number = 0;
  const Status added = database.Transact([&]() -> Status {
    LH_ASSIGN_OR_RETURN(sqlite::Statement find,
                        database.Prepare("SELECT number FROM lists WHERE sha256=?1"));
    LH_ASSIGN_OR_RETURN(const bool known, find.Args(list).Next());
    if (known) {
      number = find.Int(0);
      return find.Next().status();
    }
    LH_ASSIGN_OR_RETURN(sqlite::Statement add,
                        database.Prepare("INSERT INTO lists(sha256) VALUES(?1)"));
    LH_RETURN_IF_ERROR(add.Args(list).Run());
    LH_ASSIGN_OR_RETURN(number, database.QueryInt("SELECT last_insert_rowid()"));
    LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                        database.Prepare("INSERT OR IGNORE INTO names(name, list) VALUES(?1, ?2)"));
    for (const std::string_view name : sorted) {
      LH_RETURN_IF_ERROR(insert.Args(sqlite::Blob{name}, number).Run());
    }
    for (const std::string& address : names.objects) {
      const std::string name = NameOfObject(address);
      LH_RETURN_IF_ERROR(insert.Args(sqlite::Blob{name}, number).Run());
    }
    return absl::OkStatus();
  });
  if (!added.ok()) return added;
  return number;
}

StatusOr<bool> BlobIndex::Names(const std::set<int64_t>& lists, std::string_view name) const {
  if (lists.empty()) return false;
  const std::lock_guard lock(reader_.mutex);
  sqlite::Statement& rows = reader_.lists_of_name;
  rows.Args(sqlite::Blob{name});
  bool found = false;
  while (true) {
    // Also behind a match: the last row resets the statement.
    LH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return found;
    found = found || lists.contains(rows.Int(0));
  }
}

StatusOr<bool> BlobIndex::NamesBlob(const std::set<int64_t>& lists, std::string_view sha256) const {
  if (!IsSha256Hex(sha256)) return false;
  return Names(lists, absl::HexStringToBytes(std::string(sha256)));
}

StatusOr<bool> BlobIndex::NamesObject(const std::set<int64_t>& lists,
                                      std::string_view address) const {
  return Names(lists, NameOfObject(address));
}

StatusOr<uint64_t> BlobIndex::BytesOf(const std::string& member) const {
  const std::lock_guard lock(reader_.mutex);
  LH_RETURN_IF_ERROR(reader_.bytes_of.Args(member).Next().status());
  const auto bytes = static_cast<uint64_t>(reader_.bytes_of.Int(0));
  LH_RETURN_IF_ERROR(reader_.bytes_of.Next().status());
  return bytes;
}

StatusOr<bool> BlobIndex::HasSent(std::string_view member, std::string_view sha256) const {
  const std::lock_guard lock(reader_.mutex);
  LH_ASSIGN_OR_RETURN(const bool has, reader_.has_sent.Args(member, sha256).Next());
  if (has) LH_RETURN_IF_ERROR(reader_.has_sent.Next().status());
  return has;
}

Status BlobIndex::NoteSent(const std::string& member, std::string_view sha256, uint64_t bytes) {
  const std::lock_guard lock(writer_.mutex);
  LH_ASSIGN_OR_RETURN(sqlite::Statement note,
                      writer_.database.Prepare("INSERT OR IGNORE INTO sent(member, sha256, bytes) "
                                               "VALUES(?1, ?2, ?3)"));
  return note.Args(member, sha256, bytes).Run();
}

Status BlobIndex::Forget(std::string_view sha256) {
  const std::lock_guard lock(writer_.mutex);
  for (const char* sql :
       {"DELETE FROM sent WHERE sha256=?1", "DELETE FROM lists WHERE sha256=?1"}) {
    LH_ASSIGN_OR_RETURN(sqlite::Statement statement, writer_.database.Prepare(sql));
    LH_RETURN_IF_ERROR(statement.Args(sha256).Run());
  }
  return absl::OkStatus();
}

Status BlobIndex::Tidy() {
  while (true) {
    // In pieces: who adds a list meanwhile waits for one piece.
    const std::lock_guard lock(writer_.mutex);
    LH_RETURN_IF_ERROR(writer_.database.Execute(fmt::format(
        "DELETE FROM names WHERE (name, list) IN (SELECT name, list FROM names WHERE list NOT IN "
        "(SELECT number FROM lists) LIMIT {})",
        kTidyRows)));
    LH_ASSIGN_OR_RETURN(const int64_t deleted, writer_.database.QueryInt("SELECT changes()"));
    if (deleted < kTidyRows) return absl::OkStatus();
  }
}

}  // namespace longhaul::coordinator
