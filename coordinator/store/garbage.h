// Deletes data that no run names: blobs, copies of shards, old step records. The state machine has
// listed what runs name before (coordinator/state/queries/garbage.cc).
#pragma once

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/store.h"

namespace longhaul::coordinator {

// How long an unnamed blob stays after it was added or claimed (BlobStore::Claim). A submitter
// uploads before a run names the blobs, and a large upload takes hours.
inline constexpr absl::Duration kGarbageAge = absl::Hours(24);

// Deletes blobs and copies of shards that `asked` does not name, directly or by one of its lists of
// blobs, and that are older than `age`. Of the runs in asked.trimmed it deletes all step records
// but the newest. With asked.dry_run it only counts. May take long; call it on any thread. If a
// list of blobs exists and cannot be read, all blobs stay, and the reply says so. Errors: those of
// the store and of the folders.
StatusOr<v1::CollectGarbageReply> CollectGarbage(const command::CollectGarbage& asked,
                                                 const BlobStore& blobs, const BlobStore& copies,
                                                 Store* store, absl::Duration age = kGarbageAge);

}  // namespace longhaul::coordinator
