// Backs up a coordinator's state directory: the store, the certificate authority, the relay's
// secret, and on request uploaded data and copies of shards. SQLite's backup interface copies the
// store as of one moment, so the coordinator may serve meanwhile. A backup has no log of changes
// and no witness: whoever restores it begins alone.
//
//   <folder>/store.db  authority.pem  relay-secret  blobs/  shard-copies/
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

// Copies the store as it was at the time of Begin, whatever is written later. Threads: one.
class StoreCopy {
 public:
  // `store`: path of the database. kNotFound: there is none.
  static StatusOr<StoreCopy> Begin(const std::string& store);
  // Writes the copy to a new file, of mode 0600 from its beginning, complete without a write-ahead
  // log beside it. Returns the number of runs. kDataLoss: the store is damaged, or it is not a
  // coordinator's. Call it once.
  StatusOr<uint64_t> WriteTo(const std::string& path);

 private:
  StoreCopy(std::string store, sqlite::Database source)
      : store_(std::move(store)), source_(std::move(source)) {}
  std::string store_;
  sqlite::Database source_;
};

struct BackedUp {
  uint64_t runs = 0;
  uint64_t blobs = 0;  // copied by this call; blobs that were there already do not count
  uint64_t blob_bytes = 0;
};

// Backs up into `folder`, which is created with mode 0700 (it holds the authority's key). The store
// of an older backup there is replaced last, when everything else is complete. kNotFound: no store.
// kFailedPrecondition: the folder is a state directory.
StatusOr<BackedUp> BackUp(const std::string& state_dir, const std::string& folder, bool with_blobs);

// Restores a backup into a state directory that has neither store nor secrets, and that no
// coordinator serves. Checks the backup first: kDataLoss names the damage, and then nothing is
// restored. kFailedPrecondition: the directory was used. kNotFound: the backup has no store.
StatusOr<BackedUp> Restore(const std::string& folder, const std::string& state_dir);

}  // namespace longhaul::coordinator
