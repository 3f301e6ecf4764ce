// Fetches chunks of data sets from sources other than workers (worker/data/set_chunks.h): the set's
// web server, its folder on this worker, or the coordinator.
#ifndef LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_
#define LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_

#include "worker/data/set_chunks.h"
#include "worker/rpc/blob_fetcher.h"

namespace longhaul::worker {

// kDataLoss, kNotFound: the chunk is not as it was when the run was submitted. True of both
// functions.
FetchChunk FetchFromPlace();
// `blobs` must outlive the result. What was fetched is deleted from it again.
FetchChunk FetchFromCoordinator(BlobFetcher* blobs);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_
