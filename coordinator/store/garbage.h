// Deletes what no run names: blobs, copies of shards, old step records. What the state machine
// decides before that is in coordinator/state/queries/garbage.h.
#ifndef LONGHAUL_COORDINATOR_STORE_GARBAGE_H_
#define LONGHAUL_COORDINATOR_STORE_GARBAGE_H_

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/store.h"

namespace longhaul::coordinator {

// A blob that nobody names stays for so long after it came or was claimed (BlobStore::Claim):
// whoever submits uploads first, and a large upload takes hours.
inline constexpr absl::Duration kGarbageAge = absl::Hours(24);

// Takes as long as it takes; any thread. Where a list of blobs is there and cannot be read, all
// blobs stay, and the reply says so. Errors: those of the store and of the folders.
StatusOr<v1::CollectGarbageReply> CollectGarbage(const command::CollectGarbage& asked,
                                                 const BlobStore& blobs, const BlobStore& copies,
                                                 Store* store, absl::Duration age = kGarbageAge);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_GARBAGE_H_
