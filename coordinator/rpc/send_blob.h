// A blob on its way out of the coordinator: to a worker, or to the CLI.
#ifndef LONGHAUL_COORDINATOR_RPC_SEND_BLOB_H_
#define LONGHAUL_COORDINATOR_RPC_SEND_BLOB_H_

#include <grpcpp/grpcpp.h>

#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.grpc.pb.h"

namespace longhaul::coordinator {

// Sends a blob out of `blobs`, or out of `copies` where `blobs` does not have it. One of the two
// may be null: a caller that may not look there. The reactor deletes itself when the call is done.
grpc::ServerWriteReactor<v1::BlobChunk>* SendBlob(const BlobStore* blobs, const BlobStore* copies,
                                                  const v1::FetchBlobRequest& request);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_SEND_BLOB_H_
