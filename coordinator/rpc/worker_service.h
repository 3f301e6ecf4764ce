// WorkerService: sessions of workers, and the files they fetch.
#ifndef LONGHAUL_COORDINATOR_RPC_WORKER_SERVICE_H_
#define LONGHAUL_COORDINATOR_RPC_WORKER_SERVICE_H_

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.grpc.pb.h"

namespace longhaul::coordinator {

class WorkerServiceImpl : public v1::WorkerService::CallbackService {
 public:
  // An empty token lets everybody in. `shell`, `blobs` and `copies` (of shards) must outlive the
  // server.
  WorkerServiceImpl(std::string token, absl::Duration hello_timeout, Shell* shell,
                    const BlobStore* blobs, const BlobStore* copies)
      : token_(std::move(token)),
        hello_timeout_(hello_timeout),
        shell_(shell),
        blobs_(blobs),
        copies_(copies) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::BlobChunk>* FetchBlob(grpc::CallbackServerContext* context,
                                                     const v1::FetchBlobRequest* request) override;

  grpc::ServerReadReactor<v1::UploadChunk>* StoreShard(grpc::CallbackServerContext* context,
                                                       v1::UploadReply* reply) override;

 private:
  const std::string token_;
  const absl::Duration hello_timeout_;
  Shell* const shell_;
  const BlobStore* const blobs_;
  const BlobStore* const copies_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_WORKER_SERVICE_H_
