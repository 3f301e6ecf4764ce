// Fetches chunks of data sets from two sources (worker/data/set_chunks.h): the set's place, which
// is an address or a folder on this machine, and the coordinator.
#pragma once

#include <memory>

#include "base/remote/store.h"
#include "base/root_folders.h"
#include "worker/data/set_chunks.h"
#include "worker/epoch/blob_fetcher.h"

namespace longhaul::worker {

// Each returns a thread-safe function that fetches one chunk. The returned function fails with
// kDataLoss or kNotFound if the source does not have the chunk as it was when the run was
// submitted, with kCancelled if the chunk is no longer wanted, and with kUnavailable or
// kDeadlineExceeded if the source could not be reached for some minutes.
//
// `roots`: the folders of this machine that may be read, which must outlive the returned function;
// null: none. `objects` reads at addresses. Null: sets at addresses are refused.
FetchChunk FetchFromPlace(const RootFolders* roots, std::shared_ptr<const remote::Store> objects);
// `blobs` must outlive the returned function. The function deletes each fetched file from `blobs`
// after reading it.
FetchChunk FetchFromCoordinator(BlobFetcher* blobs);

}  // namespace longhaul::worker
