// Where chunks of data sets come from beside other workers (worker/data/set_chunks.h): a web
// server where the set is at one, the set's folder where this worker has it, the coordinator.
#ifndef LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_
#define LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_

#include "worker/data/set_chunks.h"
#include "worker/rpc/blob_fetcher.h"

namespace longhaul::worker {

// Of both: kDataLoss, kNotFound where the chunk is not there as it was when the run was submitted.
FetchChunk FetchFromPlace();
// `blobs` must outlive it; what was fetched is deleted there again.
FetchChunk FetchFromCoordinator(BlobFetcher* blobs);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_
