// Fetches chunks of data sets from the sources that are not workers (worker/data/set_chunks.h): the
// set's place, which is a web server or a folder on this machine, and the coordinator.
#pragma once

#include "worker/data/set_chunks.h"
#include "worker/epoch/blob_fetcher.h"

namespace longhaul::worker {

// The returned functions give kDataLoss or kNotFound if the source does not have the chunk as it
// was when the run was submitted.
FetchChunk FetchFromPlace();
// `blobs` must outlive the returned function, which deletes each file from it after reading it.
FetchChunk FetchFromCoordinator(BlobFetcher* blobs);

}  // namespace longhaul::worker
