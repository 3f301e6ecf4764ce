// Sends a blob from the coordinator to a worker or to the CLI.
#pragma once

#include <grpcpp/grpcpp.h>

#include "coordinator/rpc/places.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.grpc.pb.h"

namespace longhaul::coordinator {

// Sends a blob from `blobs`, or from `copies` if `blobs` lacks it, from byte request.offset() on. A
// store to which the caller has no right is null; at most one may be null. The stores must outlive
// the call. The call ends with kNotFound if there is no such blob, and with kOutOfRange if the blob
// is shorter than the offset. `place`: that of the call's caller.
// The reactor deletes itself when the call is done.
grpc::ServerWriteReactor<v1::BlobChunk>* SendBlob(const BlobStore* blobs, const BlobStore* copies,
                                                  const v1::FetchBlobRequest& request, Place place);

}  // namespace longhaul::coordinator
