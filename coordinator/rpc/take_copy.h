// Takes a copy of a blob from the other coordinator, because the one here was damaged.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "coordinator/rpc/places.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// Makes the reactor of one call; it deletes itself. The pointers must outlive the call. The blob is
// synced on one of the shell's threads. Ends with OK if the blob is here, whoever sent it.
grpc::ServerReadReactor<v1::CopyChunk>* TakeCopy(const BlobStore* blobs, const BlobStore* copies,
                                                 Shell* shell, Place place);

}  // namespace longhaul::coordinator
