// Chunks of data sets: from a web server where the set is at one, out of the set's folder where
// this worker has it, else from the coordinator.
#ifndef LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_
#define LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_

#include "worker/data/set_windows.h"
#include "worker/rpc/blob_fetcher.h"

namespace longhaul::worker {

// `blobs` must outlive it; what was fetched is deleted there again. kDataLoss, kNotFound: neither
// of them has the chunk as it was when the run was submitted.
FetchChunk ChunkFetcher(BlobFetcher* blobs);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_CHUNK_FETCHER_H_
