// Fetches chunks of data sets from sources other than workers (worker/data/set_chunks.h): the set's
// web server, its folder on this worker, or the coordinator.
#pragma once

#include "worker/data/set_chunks.h"
#include "worker/epoch/blob_fetcher.h"

namespace longhaul::worker {

// Both functions return kDataLoss or kNotFound if the chunk is not as it was when the run was
// submitted.
FetchChunk FetchFromPlace();
// `blobs` must outlive the result. Fetched files are deleted from it again.
FetchChunk FetchFromCoordinator(BlobFetcher* blobs);

}  // namespace longhaul::worker
