// A blob on its way out of the coordinator: to a worker, or to the CLI.
#ifndef LONGHAUL_COORDINATOR_RPC_SEND_BLOB_H_
#define LONGHAUL_COORDINATOR_RPC_SEND_BLOB_H_

#include <grpcpp/grpcpp.h>

#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.grpc.pb.h"

namespace longhaul::coordinator {

// Of `blobs`, or of `copies` where those do not have it; a null store is not looked into, and one
// of them is given. Deletes itself when the call is done.
grpc::ServerWriteReactor<v1::BlobChunk>* SendBlob(const BlobStore* blobs, const BlobStore* copies,
                                                  const v1::FetchBlobRequest& request);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_SEND_BLOB_H_
