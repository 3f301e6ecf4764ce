// A blob on its way from the CLI.
#ifndef LONGHAUL_COORDINATOR_RPC_UPLOAD_H_
#define LONGHAUL_COORDINATOR_RPC_UPLOAD_H_

#include <grpcpp/support/server_callback.h>

#include "coordinator/store/blob_store.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// The reactor of one UploadBlob call; it owns itself. `blobs` must outlive the call.
grpc::ServerReadReactor<v1::UploadChunk>* StartUpload(const BlobStore* blobs);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_UPLOAD_H_
