// Deletes data that no run names: blobs, copies of shards, old step records. Before, the state
// machine finds out what runs name (coordinator/state/queries/garbage.cc).
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

// Deletes blobs and copies that are not named in `asked`, and the step records that it gives up;
// with asked.dry_run only counts them. May take long; call it on any thread. If a run's list of
// blobs exists and cannot be read, all blobs stay, and the reply says so. Errors: those of the
// store and of the folders.
StatusOr<v1::CollectGarbageReply> CollectGarbage(const command::CollectGarbage& asked,
                                                 const BlobStore& blobs, const BlobStore& copies,
                                                 Store* store, absl::Duration age = kGarbageAge);

}  // namespace longhaul::coordinator
