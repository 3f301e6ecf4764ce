// What the coordinator knows of its blobs besides their bytes: which blobs and files each list
// names, and which member has sent which blob. Lies in a database of its own beside the store, so
// that a question costs a look at a few pages, however many lists there are. A lost or damaged
// database is made anew: lists are read again when they are asked about, and members' bytes count
// from zero.
//
// Thread-safe. Questions do not wait for lists that are being added. Errors: those of SQLite
// (sqlite.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "coordinator/store/list_names.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

class BlobIndex {
 public:
  // Opens or makes the database <folder>/blob-index.db.
  static StatusOr<std::unique_ptr<BlobIndex>> Open(const std::string& folder);

  // ---- Lists, named by their SHA-256
  // The number by which the index knows a list; 0: it does not know the list.
  StatusOr<int64_t> NumberOf(std::string_view list) const;
  // Adds a list in one transaction, and returns its number. A list that is known stays as it is.
  StatusOr<int64_t> AddList(std::string_view list, const ListNames& names);
  // Whether one of these lists, by their numbers, names the blob, by its SHA-256 in hexadecimal
  // digits, or the file, by its address.
  StatusOr<bool> NamesBlob(const std::set<int64_t>& lists, std::string_view sha256) const;
  StatusOr<bool> NamesObject(const std::set<int64_t>& lists, std::string_view address) const;

  // ---- Who has sent what
  // Bytes of the blobs that the member has sent and that are still there.
  StatusOr<uint64_t> BytesOf(const std::string& member) const;
  // Whether the member's bytes have this blob.
  StatusOr<bool> HasSent(std::string_view member, std::string_view sha256) const;
  // The member has sent all bytes of a blob. Again: nothing changes.
  Status NoteSent(const std::string& member, std::string_view sha256, uint64_t bytes);
  // A blob is gone, which may be a list.
  Status Forget(std::string_view sha256);
  // Deletes what is left of lists that are gone. Takes time; for garbage collection.
  Status Tidy();

 private:
  // A connection with its statements.
  struct Connection {
    mutable std::mutex mutex;  // guards the members below
    mutable sqlite::Database database;
    mutable sqlite::Statement number_of, lists_of_name, bytes_of, has_sent;
  };
  BlobIndex() = default;
  static StatusOr<std::unique_ptr<BlobIndex>> OpenAt(const std::string& path);
  static Status Prepare(const std::string& path, Connection* connection);
  StatusOr<bool> Names(const std::set<int64_t>& lists, std::string_view name) const;

  Connection writer_, reader_;
};

}  // namespace longhaul::coordinator
