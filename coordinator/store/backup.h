// Copies of a coordinator's state directory: its store, its certificate authority and its relay's
// secret, and uploaded data and copies of shards where asked for. The store is copied by SQLite's
// backup interface, so the coordinator may serve meanwhile: the copy is the store of one moment.
//
//   <folder>/store.db  authority.pem  relay-secret  blobs/  shard-copies/
#ifndef LONGHAUL_COORDINATOR_STORE_BACKUP_H_
#define LONGHAUL_COORDINATOR_STORE_BACKUP_H_

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

// A copy of the store as it is at the moment of Begin, however much is written meanwhile.
class StoreCopy {
 public:
  // kNotFound: there is no store.
  static StatusOr<StoreCopy> Begin(const std::string& store);
  // To a new file of mode 0600, which needs no log beside it. kDataLoss: the store is damaged. The
  // number of its runs.
  StatusOr<uint64_t> WriteTo(const std::string& path);

 private:
  StoreCopy(std::string store, sqlite::Database source)
      : store_(std::move(store)), source_(std::move(source)) {}
  std::string store_;
  sqlite::Database source_;
};

struct BackedUp {
  uint64_t runs = 0;
  uint64_t blobs = 0;  // copied now; those that the folder has already are left as they are
  uint64_t blob_bytes = 0;
};

// Into `folder`, which is made with mode 0700 (the authority's key is a secret) where it is
// missing; an older backup there is replaced when the new one is whole. kNotFound: there is no
// store. kFailedPrecondition: the folder is a state directory.
StatusOr<BackedUp> BackUp(const std::string& state_dir, const std::string& folder, bool with_blobs);

// The state directory must have neither store nor secrets, and nobody may serve it. The backup is
// checked first: kDataLoss names what is damaged, and nothing is written then.
StatusOr<BackedUp> Restore(const std::string& folder, const std::string& state_dir);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_BACKUP_H_
